package committer

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Over returns a Sender that sends through a route.Sender.
func Over(s *route.Sender) Sender { return &routed{s} }

// routed is a Sender that sends through a route.Sender.
type routed struct{ *route.Sender }

// askWait bounds the wait for a node's clock; askPause is the pause before the next try.
const (
	askWait  = 300 * time.Millisecond
	askPause = 20 * time.Millisecond
)

func placeOf(p *route.Partition) Place {
	place := Place{Keyspace: p.Keyspace, Partition: p.ID, Generation: p.Generation,
		Hash: AllPartitions, Span: p.Span}
	if p.Descriptor.PrefixLength == keys.HashPrefixLength {
		place.Hash = int(p.Hash)
	}
	return place
}

// Locate implements Sender.
func (r *routed) Locate(ctx context.Context, k Key) (Place, error) {
	for {
		ks := r.Table().KeyspaceByID(k.Keyspace)
		if ks == nil {
			return Place{}, &route.Error{Cause: route.ErrNoKeyspace}
		}
		if p := ks.ByKey(k.Key); p != nil {
			return placeOf(p), nil
		}
		// There is a hole in the table: wait until it is filled.
		if _, err := r.PartitionsOf(ctx, k.Keyspace, keys.Span{}); err != nil {
			return Place{}, err
		}
	}
}

// Overlapping implements Sender.
func (r *routed) Overlapping(ctx context.Context, s Span) ([]Place, error) {
	parts, err := r.PartitionsOf(ctx, s.Keyspace, s.Span)
	if err != nil {
		return nil, err
	}
	out := make([]Place, 0, len(parts))
	for _, p := range parts {
		if place := placeOf(p); s.Hash == AllPartitions || place.Hash == s.Hash {
			out = append(out, place)
		}
	}
	return out, nil
}

// Send implements Sender.
func (r *routed) Send(ctx context.Context, q *Request) (*kvpb.Response, error) {
	answer, err := r.Do(ctx, q.call())
	if err != nil {
		return nil, err
	}
	return answer.Response, nil
}

// Executed implements Sender.
func (r *routed) Executed(ctx context.Context, q *Request, key []byte) (hlc.Timestamp, bool,
	error) {
	return r.Sender.Executed(ctx, q.call(), key)
}

// SendAll implements Sender.
func (r *routed) SendAll(ctx context.Context, limit int, all []*Request,
	landed func(i int, response *kvpb.Response, err error) error) error {
	calls := make([]*route.Call, len(all))
	for i, q := range all {
		calls[i] = q.call()
	}
	return r.DoAll(ctx, limit, calls, func(i int, answer route.Answer, err error) error {
		return landed(i, answer.Response, err)
	})
}

// call returns the request as a route.Call.
func (q *Request) call() *route.Call {
	call := &route.Call{Keyspace: q.Place.Keyspace, Key: q.Key, Write: q.Write, Slack: q.Slack,
		Identity: q.Identity, Request: q.Command}
	if q.Place.Hash != AllPartitions {
		call.By, call.Hash = route.ByHash, uint32(q.Place.Hash)
	}
	if q.Fits != nil {
		call.Prepare = route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
			if q.Fits(placeOf(p)) {
				return nil
			}
			return ErrMoved
		})
	}
	return call
}

// MaxClockOffset implements Sender.
func (r *routed) MaxClockOffset() time.Duration { return r.Clock.MaxOffset() }

// MaxAge implements Sender.
func (r *routed) MaxAge(keyspace keys.KeyspaceID) time.Duration {
	ks := r.Table().KeyspaceByID(keyspace)
	if ks == nil {
		return 0
	}
	return txn.LimitsOf(ks.Info).Age
}

// Now implements Sender.
func (r *routed) Now(ctx context.Context) (now, age hlc.Timestamp, err error) {
	for {
		if _, at, _, ok := r.Clock.Estimate(); ok {
			if age, ok = r.Clock.Earliest(); !ok {
				age = at
			}
			return at, age, nil
		}
		if at, ok := r.AskClocks(ctx, askWait); ok {
			return at, at, nil
		}
		timer := time.NewTimer(askPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return now, age, &route.Error{Cause: ctx.Err(), Message: "asking the nodes for their clocks"}
		case <-r.Done():
			timer.Stop()
			return now, age, &route.Error{Cause: route.ErrClosed}
		}
	}
}
