package coordination

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// holder is a lock or a leadership, which one client may have at a time.
type holder interface {
	comparable
	// Err is nil as long as the client may believe that it has the lock or the leadership.
	Err() error
	Token() coord.Token
}

// enterAlone adds a holder. If other holders are still there after drift, longer than errors of
// clocks explain, enterAlone calls both with each of them. mu guards the holders. The caller holds
// mu, and enterAlone unlocks mu while it waits.
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
