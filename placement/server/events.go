package server

import (
	"context"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxEvents is how many events are kept; the oldest go.
	maxEvents = 10_000
	// defaultEvents is how many a request gets that does not say.
	defaultEvents = 1000
	// eventPage is how many are read at a time.
	eventPage = 500
)

// commitEvent does writes if the conditions hold, and adds an event to the log with them; false:
// the conditions do not hold, and nothing was done.
func (s *Server) commitEvent(ctx context.Context, e *clusterpb.Event,
	conditions []*storepb.Compare, ops ...*storepb.Op) (bool, error) {
	for {
		last, revision, err := loadID(s.store.Stale(), []byte(eventsKey))
		if err != nil {
			return false, s.toStatus(err)
		}
		e.Number, e.UnixMs = last+1, time.Now().UnixMilli()
		all := append(slices.Clone(ops), store.Put(eventKey(e.Number), encode(e)),
			store.Put([]byte(eventsKey), encodeID(e.Number)))
		if e.Number > maxEvents {
			all = append(all, store.Delete(eventKey(e.Number-maxEvents)))
		}
		unchanged := store.ModifiedAt([]byte(eventsKey), revision)
		ok, err := s.commit(ctx, append(slices.Clone(conditions), unchanged), all...)
		if ok || err != nil {
			return ok, err
		}
		// A commit that failed was seen here, so what it met is in this member's store.
		if _, now, err := loadID(s.store.Stale(), []byte(eventsKey)); now == revision || err != nil {
			return false, err
		}
	}
}

// eventsBackwards calls f with the events, the newest first, until it returns false.
func eventsBackwards(v *store.View, f func(*clusterpb.Event) bool) error {
	last, _, err := loadID(v, []byte(eventsKey))
	if err != nil {
		return err
	}
	end := last + 1
	for end > 1 {
		from := uint64(1)
		if end > eventPage {
			from = end - eventPage
		}
		page, err := v.Range(&storepb.Range{Key: eventKey(from), RangeEnd: eventKey(end)})
		if err != nil {
			return err
		}
		for i := len(page.Kvs) - 1; i >= 0; i-- {
			e := &clusterpb.Event{}
			if err := e.UnmarshalVT(page.Kvs[i].Value); err != nil {
				return errMalformed(page.Kvs[i].Key, err)
			}
			if !f(e) {
				return nil
			}
		}
		if len(page.Kvs) == 0 {
			return nil
		}
		end = from
	}
	return nil
}

// ListEvents lists what placement did, the newest first.
func (s *Server) ListEvents(
	ctx context.Context, r *clusterpb.ListEventsRequest,
) (*clusterpb.ListEventsResponse, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	limit := int(r.Limit)
	if limit == 0 {
		limit = defaultEvents
	}
	sees := sightOf(ctx)
	out := &clusterpb.ListEventsResponse{}
	err = eventsBackwards(v, func(e *clusterpb.Event) bool {
		if r.Partition != 0 && e.Partition != r.Partition && e.Child != r.Partition &&
			e.Right != r.Partition || r.Node != 0 && e.ToNode != r.Node &&
			e.FromNode != r.Node && e.LeadNode != r.Node {
			return true
		}
		sees.event(e)
		out.Events = append(out.Events, e)
		return len(out.Events) < limit
	})
	if err != nil {
		return nil, s.toStatus(err)
	}
	return out, nil
}

// lastEnded is when the last operator of each partition ended, and when it last split or merged, as
// far as events are kept.
func lastEnded(v *store.View) (ended, resized map[keys.PartitionID]time.Time, err error) {
	ended, resized = map[keys.PartitionID]time.Time{}, map[keys.PartitionID]time.Time{}
	kinds := map[string]bool{planner.Split.String(): true, planner.Merge.String(): true}
	err = eventsBackwards(v, func(e *clusterpb.Event) bool {
		id, at := keys.PartitionID(e.Partition), time.UnixMilli(e.UnixMs)
		if _, later := ended[id]; e.Operator != 0 && !later {
			ended[id] = at
		}
		if _, later := resized[id]; kinds[e.Kind] && !later {
			resized[id] = at
		}
		return true
	})
	return ended, resized, err
}
