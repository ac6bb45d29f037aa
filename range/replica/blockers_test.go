package replica

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

type silentPusher struct{}

func (silentPusher) Push(*kvpb.PushRequest, func(*kvpb.TransactionStatus, error)) {}

// A question that was asked long ago, and for which nobody waits any more, is not due: a timer set for it would go off again and again
// while the other question is under way.
func TestAQuestionForNobodyIsNotDue(t *testing.T) {
	now := time.Now()
	r := &Replica{node: &Node{Pusher: silentPusher{}}}
	for name, b := range map[string]*blocker{
		"read":  {read: lane{due: now.Add(-time.Second)}, write: lane{inFlight: true}},
		"write": {read: lane{inFlight: true}, write: lane{due: now.Add(-time.Second)}},
	} {
		b.of = &locks.Transaction[*parked]{}
		var todo lockWork
		if again := b.askLocked(r, now, &todo); !again.IsZero() || len(todo.pushes) > 0 {
			t.Errorf("%s: again at %v, %d questions", name, again.Sub(now), len(todo.pushes))
		}
	}
}
