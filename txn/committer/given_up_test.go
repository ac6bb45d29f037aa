package committer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The request for the decision is lost, and readers push the transaction, before its caller gives
// up. It can never be committed then, and leaves no locks that stand in the way of others for as
// long as a silent client's do.
func TestAPushedTransactionThatWasGivenUpLeavesNoLocks(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		x := begin(t, ctx, c)
		c.sender = &pushing{fake: s, given: ctx}
		_, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, Reads{}, false)
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
		if n := s.locksLeft(c); n != 0 {
			t.Errorf("%d locks are left", n)
		}
		if at, err := x.Outcome(t.Context()); !errors.Is(err, ErrAborted) {
			t.Errorf("the outcome: %s, %v", at, err)
		}
	})
}

// pushing loses requests for a decision, and pushes the transaction, until a context has ended.
type pushing struct {
	*fake
	given context.Context
}

func (p *pushing) Send(ctx context.Context, q *Request) (*kvpb.Response, error) {
	end, ends := q.Command.Command.(*kvpb.Request_EndTransaction)
	if !ends || p.given.Err() != nil {
		return p.fake.Send(ctx, q)
	}
	<-ctx.Done()
	p.push(end.EndTransaction.Transaction.Id, p.now().Add(20*time.Millisecond))
	return nil, unknownError()
}
