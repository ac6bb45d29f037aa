package workloads

import (
	"context"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
	"github.com/tidemarkdb/tidemark/kv"
)

// recorded runs transactions, and records them for the checker of isolation. Every attempt of an
// update is recorded as a transaction. An attempt that is followed by another attempt was aborted.
// A session is one client, and does one thing at a time.
type recorded struct {
	db       driver.Transactor
	recorder *isolation.Recorder
	session  int
}

// update runs f in a transaction. f records its operations with note.
func (r recorded) update(ctx context.Context, f func(tx driver.Tx, note isolation.Pending,
	attempt int) error) error {
	var last isolation.Pending
	attempts := 0
	at, err := r.db.Update(ctx, func(tx driver.Tx) error {
		if attempts++; attempts > 1 {
			last.Aborted()
		}
		last = r.recorder.Begin(r.session)
		return f(tx, last, attempts)
	})
	switch {
	case attempts == 0:
	case err == nil:
		last.Committed(commit(at))
	case driver.Unknown(err):
		last.Unknown()
	default:
		last.Aborted()
	}
	return err
}

// view runs f in a transaction that only reads. f may be called several times, so it collects its
// reads, and records them after the last call.
func (r recorded) view(ctx context.Context, f func(tx driver.Tx) error,
	notes func(note isolation.Pending)) error {
	note := r.recorder.Begin(r.session)
	at, err := r.db.View(ctx, f)
	if err != nil {
		note.Aborted()
		return err
	}
	notes(note)
	note.Committed(commit(at))
	return nil
}

func commit(at kv.Timestamp) isolation.Timestamp {
	return isolation.Timestamp{Wall: at.Wall, Logical: at.Logical}
}
