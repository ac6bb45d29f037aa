package committer

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// held is a partition with locks of a transaction, and one of their keys, which is a short one: a
// decision names them all.
type held struct {
	place Place
	key   []byte
}

// placesOf names each partition that holds some of the keys once. What was dropped with its
// keyspace is left out. With an error others may be missing.
func (c *Committer) placesOf(ctx context.Context, all []Key) (out []held, err error) {
	seen := make(map[keys.PartitionID]int)
	for _, k := range all {
		p, failed := c.sender.Locate(ctx, k)
		if failed != nil {
			if !errors.Is(failed, route.ErrNoKeyspace) {
				err = failed
			}
			continue
		}
		i, known := seen[p.Partition]
		switch {
		case !known:
			seen[p.Partition] = len(out)
			out = append(out, held{p, k.Key})
		case len(k.Key) < len(out[i].key):
			out[i].key = k.Key
		}
	}
	return out, err
}

func participants(all []held) []*kvpb.Participant {
	out := make([]*kvpb.Participant, len(all))
	for i, h := range all {
		out[i] = &kvpb.Participant{Keyspace: uint32(h.place.Keyspace), Key: h.key}
	}
	return out
}

// apart are those of some places whose partition is not among others.
func apart(some, others []held) (out []held) {
	if len(some) == 0 {
		return nil
	}
	known := make(map[keys.PartitionID]bool, len(others))
	for _, p := range others {
		known[p.place.Partition] = true
	}
	for _, p := range some {
		if !known[p.place.Partition] {
			out = append(out, p)
		}
	}
	return out
}

// resolve ends the locks of a decided transaction, of keys and of the spans held in some places,
// one request for each partition. What fails is left to the requests that meet it.
func (c *Committer) resolve(ctx context.Context, id []byte, status *kvpb.TransactionStatus,
	all []Key, spans []held) {
	places, _ := c.placesOf(ctx, all)
	places = append(places, apart(spans, places)...)
	requests := make([]*Request, len(places))
	for i, p := range places {
		requests[i] = &Request{
			Place: p.place, Key: p.key, Write: true,
			Command: &kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
				Resolutions: []*kvpb.Resolution{{Transaction: id, Status: status}}, Background: true,
			}}},
		}
	}
	parallel := maxParallel
	if len(all) >= manyLocks {
		parallel = fewParallel
	}
	_ = c.sender.SendAll(ctx, parallel, requests, func(int, *kvpb.Response, error) error {
		return nil // one partition's failure is no reason to leave the others
	})
}
