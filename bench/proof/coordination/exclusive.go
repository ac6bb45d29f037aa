package coordination

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// holder is what one client has at a time: a lock or a leadership.
type holder interface {
	comparable
	// Err is nil as long as its client may believe that it has it.
	Err() error
	Token() coord.Token
}

// enterAlone adds a holder to those there are, and calls both with each other one that goes on at
// the same time, for longer than clocks may differ. mu guards the holders: the caller holds it, and
// it is given up for that long.
func enterAlone[H holder](ctx context.Context, mu *sync.Mutex, holders map[H]bool, entering H,
	both func(other H)) {
	var others []H
	for other := range holders {
		if other.Err() == nil {
			others = append(others, other)
		}
	}
	holders[entering] = true
	if len(others) == 0 {
		return
	}
	mu.Unlock()
	_ = pause(ctx, drift)
	mu.Lock()
	for _, other := range others {
		if holders[other] && other.Err() == nil && entering.Err() == nil {
			both(other)
		}
	}
}
