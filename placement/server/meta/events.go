package meta

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxEvents is the number of events that are kept. The oldest are removed.
	maxEvents = 10_000

	// eventPage is the number of events that are read at a time.
	eventPage = 500
)

// CommitEvent writes if the conditions hold, and adds an event to the log in the same transaction.
// It returns false if the conditions do not hold. Then nothing is written.
func (r *Records) CommitEvent(ctx context.Context, e *clusterpb.Event,
	conditions []*storepb.Compare, ops ...*storepb.Op) (bool, error) {
	answer := answerOf(ctx)
	for {
		last, revision, err := LoadID(r.store.Stale(), []byte(eventsKey))
		if err != nil {
			return false, r.Status(err)
		}
		e.Number, e.UnixMs = last+1, time.Now().UnixMilli()
		all := append(slices.Clone(ops), store.Put(eventKey(e.Number), Encode(e)),
			store.Put([]byte(eventsKey), EncodeID(e.Number)))
		if e.Number > maxEvents {
			all = append(all, store.Delete(eventKey(e.Number-maxEvents)))
		}
		unchanged := store.ModifiedAt([]byte(eventsKey), revision)
		Answer(ctx, answer)
		ok, err := r.Commit(ctx, append(slices.Clone(conditions), unchanged), all...)
		if ok || err != nil {
			return ok, err
		}
		// This member has applied the failed commit, so its store has the state that the commit met.
		if _, now, err := LoadID(r.store.Stale(), []byte(eventsKey)); now == revision || err != nil {
			return false, err
		}
	}
}

// EventsBackwards calls f with each event, the newest first, until f returns false.
func EventsBackwards(v *store.View, f func(*clusterpb.Event) bool) error {
	last, _, err := LoadID(v, []byte(eventsKey))
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
			if err := proto.Unmarshal(page.Kvs[i].Value, e); err != nil {
				return Malformed(page.Kvs[i].Key, err)
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
