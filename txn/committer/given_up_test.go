package committer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/route"
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

// A commit in one phase is executed, its answer is lost, and its partition splits. Nobody can say
// what became of the commit before the caller gives up: the outcome is unknown, and can be asked for
// later.
func TestACommitInOnePhaseWhoseFateCannotBeAskedIsUnknown(t *testing.T) {
	bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
		x := begin(t, ctx, c)
		lost := &moved{fake: s, lost: true}
		c.sender = lost
		_, err := x.Commit(ctx, []Write{put(k2("a0"), "1"), put(k2("a1"), "1")}, Reads{}, false)
		if !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("%v, want an unknown outcome", err)
		}
		lost.lost = false
		at, err := x.Outcome(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if v, _ := s.get(k2("a1"), at); v != "1" {
			t.Errorf("committed at %s: %q", at, v)
		}
	})
}

// moved loses the answers to commits in one phase, whose partition changes then, and answers nobody
// who asks what became of them.
type moved struct {
	*fake
	lost bool
}

func (m *moved) Send(ctx context.Context, q *Request) (*kvpb.Response, error) {
	response, err := m.fake.Send(ctx, q)
	if m.lost && q.Command.GetPrepare() != nil && err == nil {
		return nil, &route.Error{Cause: ErrMoved, OutcomeUnknown: true}
	}
	return response, err
}

func (m *moved) Executed(ctx context.Context, q *Request, key []byte) (at hlc.Timestamp,
	executed bool, err error) {
	if m.lost {
		return at, false, context.DeadlineExceeded
	}
	return m.fake.Executed(ctx, q, key)
}
