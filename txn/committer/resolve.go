package committer

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// resolveRounds bounds how often resolve locates locks anew because partitions have changed.
const resolveRounds = 3

// resolve releases the locks of a decided transaction, on keys and on the spans held in some
// places, with one request for each partition. Locks that resolve misses are resolved by requests
// that meet them.
func (c *Committer) resolve(ctx context.Context, of *kvpb.Transaction,
	status *kvpb.TransactionStatus,
	all []Key, spans []*held) {
	places, _ := c.placesOf(ctx, all)
	var in heldPlaces
	for _, w := range places {
		in.add(w.place, keys.Span{Start: w.first, End: keys.Next(w.last)})
	}
	for _, h := range spans {
		in.add(h.place, h.span)
	}
	parallel := maxParallel
	if len(all) >= manyLocks {
		parallel = fewParallel
	}
	for round := 0; len(in.all) > 0 && round < resolveRounds && ctx.Err() == nil; {
		narrow := c.narrow.Load()
		requests := make([]*Request, len(in.all))
		for i, h := range in.all {
			q := &kvpb.ResolveRequest{Background: true,
				Resolutions: []*kvpb.Resolution{{Transaction: of.Id, Status: status,
					Keyspace: of.Keyspace, Anchor: of.Anchor}}}
			if narrow {
				q.Within = &kvpb.KeySpan{Start: h.span.Start, End: h.span.End}
			}
			requests[i] = &Request{
				Place: h.place, Key: h.span.Start, Fits: h.fits, Write: true,
				Command: &kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: q}},
			}
		}
		var moved, again []*held
		_ = c.sender.SendAll(ctx, parallel, requests, func(i int, r *kvpb.Response, err error) error {
			switch {
			case errors.Is(err, ErrMoved):
				moved = append(moved, in.all[i])
			case denied(err) && !narrow, r.GetResolve().GetMore():
				again = append(again, in.all[i])
			}
			return nil // one partition's failure must not stop the others
		})
		if len(again) > 0 {
			c.narrow.Store(true)
		}
		if len(moved) > 0 || len(again) == 0 {
			round++
		}
		in = c.locateAgain(ctx, moved)
		for _, h := range again {
			in.add(h.place, h.span)
		}
	}
}

// locateAgain finds the partitions that now hold the spans of some places.
func (c *Committer) locateAgain(ctx context.Context, moved []*held) (in heldPlaces) {
	for _, h := range moved {
		places, err := c.sender.Overlapping(ctx, Span{h.place.Keyspace, h.place.Hash, h.span})
		if err != nil {
			continue // requests that meet the locks resolve them
		}
		for _, p := range places {
			if part := h.span.Intersect(p.Span); !part.Empty() {
				in.add(p, part)
			}
		}
	}
	return in
}
