package committer

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// holdMost bounds the spans that one request holds.
const holdMost = 64

// Hold locks spans that will be read until the transaction ends: others that want to write there
// wait. It waits for other transactions' locks in the spans until ctx ends. since is at or above
// the timestamps of all versions in the held spans, zero if no span is held; whole is set if every
// span is held. Leaders hold spans in their memory only, and no more than they have room for, so
// reads there have to be validated like any other read. anchor becomes the transaction's anchor,
// unless the transaction has one. The spans are ordered. Spans that the client's user may not write
// are not held.
func (t *Transaction) Hold(ctx context.Context, atLeast hlc.Timestamp, anchor Key,
	spans []Span) (since hlc.Timestamp, whole bool, err error) {
	if t.ended {
		return since, false, errEnded
	}
	anchored := len(t.anchor.Key)+len(t.locked)+len(t.held.all) > 0
	t.AnchorAt(anchor)
	for i := range spans {
		t.ids.meets(spans[i].Keyspace)
	}
	ctx, done, err := t.wait(ctx)
	if err != nil {
		return since, false, err
	}
	defer done()
	since, whole, some, err := t.hold(ctx, atLeast, spans)
	if err == nil && !some && !anchored {
		t.heldNothing()
	}
	outcome := "held"
	if aborted := t.alive(); aborted != nil {
		err = aborted
	}
	switch {
	case err != nil:
		outcome = "failed"
	case !whole:
		outcome = "refused"
	}
	t.c.metrics.holds.With(outcome).Inc()
	return since, whole, err
}

// heldNothing takes the anchor back: no server knows the anchor from a request that took effect,
// and perhaps the user may not write at that key.
func (t *Transaction) heldNothing() {
	t.c.stopHeartbeats(t)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.beating {
		t.anchor, t.held = Key{}, heldPlaces{}
	}
}

// hold asks the partitions; some is set if at least one partition holds a span, or may hold one.
// The first partition is asked alone: of several transactions that want the same spans, one gets
// through, and the others wait at that partition without holding a span that the first needs.
func (t *Transaction) hold(ctx context.Context, atLeast hlc.Timestamp,
	spans []Span) (since hlc.Timestamp, whole, some bool, err error) {
	chunks, err := t.c.readChunks(ctx, nil, spans)
	if err != nil {
		return since, false, false, err
	}
	var requests []*Request
	for _, c := range chunks {
		for _, s := range c.set.Spans {
			t.held.add(c.place, keys.Span{Start: s.Start, End: s.End})
		}
		for part := range slices.Chunk(c.set.Spans, holdMost) {
			requests = append(requests, &Request{
				Place: c.place, Key: part[0].Start, Fits: c.fits, Write: true, Slack: lockSlack,
				Command: &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
					Transaction: t.wire(), AtLeast: wire.ToTimestamp(atLeast), ReturnValues: true,
					Volatile: true, HoldSpans: part,
				}}},
			})
		}
	}
	whole = true
	for len(requests) > 0 {
		next := requests[:1]
		if since != (hlc.Timestamp{}) || !whole {
			next = requests
		}
		requests = requests[len(next):]
		if err := t.c.sender.SendAll(ctx, maxParallel, next,
			func(i int, response *kvpb.Response, err error) error {
				r := response.GetPrepare()
				some = some || !denied(err)
				switch {
				case denied(err):
					whole = false
					return nil
				case errors.Is(err, ErrMoved):
					whole = false // the reads are validated in any case
					return nil
				case err != nil:
					return classify(next[i].Place.Keyspace, err)
				case r.GetHeld():
					since = hlc.Max(since, wire.FromTimestamp(r.GetPrepared()))
				default:
					whole = false
				}
				return nil
			}); err != nil {
			return since, false, some, err
		}
	}
	return since, whole, some, nil
}

// endHeldBut releases, in the background, the spans held in partitions other than `committed`. The
// one-phase commit in that partition has released the spans there.
func (t *Transaction) endHeldBut(committed Place, at hlc.Timestamp) {
	t.held.remove(committed)
	if len(t.held.all) == 0 {
		return
	}
	status := &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
		Timestamp: wire.ToTimestamp(at)}
	t.c.background(func(ctx context.Context) {
		t.c.resolve(ctx, t.wire(), status, nil, t.held.all)
	})
}
