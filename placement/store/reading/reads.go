package reading

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/fairshare"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// State has the values of the newest state.
type State interface {
	Revision() uint64
	Authority() *authority.State
}

// Config configures Reads.
type Config struct {
	*Index
	Database *tables.Database
	State    State
	// Blocks counts keys at the newest revisions.
	Blocks *keycount.Blocks
	// LargestAnswer bounds the keys and values of one answer, in bytes; LargeAnswers bounds the
	// answers of more than tables.LargeAnswerBytes that callers hold at a time.
	LargestAnswer, LargeAnswers int
}

// Reads reads without the log: views, and transactions without writes. Its methods may be called
// from any goroutine.
type Reads struct {
	*Index
	config   Config
	database *tables.Database
	counts   tables.RangeCounts
	large    largeAnswers
}

// NewReads returns Reads, which end with their Index.
func NewReads(config Config) *Reads {
	return &Reads{Index: config.Index, config: config, database: config.Database,
		large: newLargeAnswers(config.LargeAnswers)}
}

const (
	// MaxLargeAnswers is the default of LargeAnswers in a store. largeAnswerWait bounds the wait of
	// another large answer.
	MaxLargeAnswers = 4
	largeAnswerWait = 5 * time.Second
)

// largeAnswers bounds the number of large answers that callers hold at a time, and so their memory.
type largeAnswers struct {
	held *fairshare.Share
	wait time.Duration
}

func newLargeAnswers(n int) largeAnswers {
	return largeAnswers{fairshare.New(fairshare.Limits{Calls: int64(n)}), largeAnswerWait}
}

// take waits, for largeAnswerWait at most, until another large answer may be held.
func (l *largeAnswers) take(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	err := l.held.Enter(limited, "", 0)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	n, _ := l.held.Held()
	return fmt.Errorf("%w: %d answers of more than %d bytes are being read; ask later, or for less "+
		"at a time", command.ErrOverloaded, n, tables.LargeAnswerBytes)
}

func (l *largeAnswers) giveBack() { l.held.Leave(0) }
