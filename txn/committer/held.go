package committer

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// written is a partition, as far as is known, with the lowest and the highest of the transaction's
// keys that may have locks in it.
type written struct {
	place       Place
	first, last []byte
}

// held is a partition, as far as is known, with locks of a transaction, and a span that contains
// them. When the partition splits or merges, the locks are in the partitions of that span.
type held struct {
	place Place
	span  keys.Span
}

// asOf identifies a partition between two changes of its span.
type asOf struct {
	partition  keys.PartitionID
	generation uint64
}

func (p Place) asOf() asOf { return asOf{p.Partition, p.Generation} }

// placesOf returns each partition that holds some of the keys, except for keys of dropped
// keyspaces. If it returns an error, partitions may be missing.
//
// Each key is in the span of a place of its keyspace and hash number, even if the table changes
// meanwhile.
func (c *Committer) placesOf(ctx context.Context, all []Key) (out []written, err error) {
	seen := make(map[asOf]int)
	for _, k := range all {
		p, failed := c.sender.Locate(ctx, k)
		if failed != nil {
			if !errors.Is(failed, route.ErrNoKeyspace) {
				err = failed
			}
			continue
		}
		i, known := seen[p.asOf()]
		if !known {
			seen[p.asOf()] = len(out)
			out = append(out, written{p, k.Key, k.Key})
			continue
		}
		w := &out[i]
		if bytes.Compare(k.Key, w.first) < 0 {
			w.first = k.Key
		}
		if bytes.Compare(k.Key, w.last) > 0 {
			w.last = k.Key
		}
	}
	return out, err
}

// participantsOf returns the participants of a decision: spans with all keys of the places.
func participantsOf(places []written) []txn.Participant {
	all := make([]txn.Participant, len(places))
	for i, w := range places {
		all[i] = txn.Participant{Keyspace: w.place.Keyspace, First: w.first, Last: w.last}
		if w.place.Hash != AllPartitions {
			all[i].Hash = uint32(w.place.Hash)
		}
	}
	return txn.JoinParticipants(all)
}

// encoded returns participants in the form of a request.
func encoded(all []txn.Participant) []*kvpb.Participant {
	out := make([]*kvpb.Participant, len(all))
	for i := range all {
		out[i] = all[i].Proto()
	}
	return out
}

// fits reports whether a partition holds all of the locks.
func (h *held) fits(p Place) bool {
	return p.same(h.place) || p.Hash == h.place.Hash && p.Span.ContainsSpan(h.span)
}

// heldPlaces are places with held spans, in the order in which they were added. A place whose
// partition changed its span appears once per span.
type heldPlaces struct {
	all []*held
	by  map[asOf]*held
}

// add adds a span. If the place is present, add widens the place's span.
func (hs *heldPlaces) add(p Place, span keys.Span) {
	h := hs.by[p.asOf()]
	if h == nil {
		if hs.by == nil {
			hs.by = make(map[asOf]*held)
		}
		h = &held{p, span}
		hs.all, hs.by[p.asOf()] = append(hs.all, h), h
		return
	}
	if bytes.Compare(span.Start, h.span.Start) < 0 {
		h.span.Start = span.Start
	}
	if len(h.span.End) > 0 && (len(span.End) == 0 || bytes.Compare(span.End, h.span.End) > 0) {
		h.span.End = span.End
	}
}

// remove removes a place.
func (hs *heldPlaces) remove(p Place) {
	if h := hs.by[p.asOf()]; h != nil {
		delete(hs.by, p.asOf())
		hs.all = slices.DeleteFunc(hs.all, func(o *held) bool { return o == h })
	}
}
