package watches

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// heldEvents are events that were taken from the store, with their size in a response.
type heldEvents struct {
	events []*mvccpb.Event
	bytes  int
}

// eventOverhead is at least what an event adds to a response besides its own size.
const eventOverhead = 8

func fromEvent(e watch.Event) *mvccpb.Event {
	event := &mvccpb.Event{Kv: translate.FromKeyValue(e.KV), PrevKv: translate.FromKeyValue(e.Previous)}
	if e.Deleted() {
		event.Type = mvccpb.Event_DELETE
	}
	return event
}

// deliver sends the events of one watch: all of a revision at once, and of several revisions so
// many as one response is to have.
func (s *sender) deliver(d watch.Delivery) error {
	w := s.watches[d.ID]
	if w == nil || w.ended {
		return nil
	}
	for _, e := range d.Events {
		event := fromEvent(e)
		size := proto.Size(event) + eventOverhead
		// INVARIANT: what is held when a revision begins is all of those before it, so a response
		// never ends within one.
		if n := len(w.held.events); n > 0 && w.held.bytes+size > s.server.config.ResponseBytes &&
			w.held.events[n-1].Kv.ModRevision < event.Kv.ModRevision {
			if err := s.sendHeld(d.ID, w, 0); err != nil {
				return err
			}
		}
		w.held.events = append(w.held.events, event)
		if w.held.bytes += size; w.held.bytes > s.server.config.MaxRevisionBytes {
			return s.end(d.ID, w, &pb.WatchResponse{Header: s.server.header(s.events.Head()),
				CancelReason: fmt.Sprintf("etcdserver: revision %d has more than %d bytes of events for "+
					"this watch; read the keys anew, and watch on from behind it", event.Kv.ModRevision,
					s.server.config.MaxRevisionBytes)})
		}
	}
	if n := len(w.held.events); n > 0 && w.held.events[n-1].Kv.ModRevision <= int64(d.Revision) {
		if err := s.sendHeld(d.ID, w, d.Revision); err != nil {
			return err
		}
	}
	if d.Compacted == 0 {
		return nil
	}
	// The header has no revision in etcd, either.
	return s.end(d.ID, w, &pb.WatchResponse{Header: s.server.header(0),
		CompactRevision: int64(d.Compacted)})
}

// end cancels a watch. The client may still cancel it, and its id is taken until it does.
func (s *sender) end(id int64, w *watchState, r *pb.WatchResponse) error {
	w.ended, w.notify, w.held = true, false, heldEvents{}
	if r.CompactRevision == 0 {
		if err := s.events.Remove(id); err != nil {
			return err
		}
	}
	r.WatchId, r.Canceled = id, true
	return s.send(r)
}

// sendHeld sends what is held of a watch, in fragments if it takes them. revision is what the
// header says, or 0: that of the last event.
func (s *sender) sendHeld(id int64, w *watchState, revision uint64) error {
	held := w.held
	w.held, w.quiet = heldEvents{}, false
	last := held.events[len(held.events)-1].Kv.ModRevision
	header := s.server.header(max(revision, uint64(last)))
	most := s.server.config.ResponseBytes
	if !w.fragment || held.bytes < most || len(held.events) == 1 {
		return s.send(&pb.WatchResponse{Header: header, WatchId: id, Events: held.events})
	}
	for rest := held.events; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) {
			size += proto.Size(rest[n]) + eventOverhead
			if n > 0 && size >= most {
				break
			}
			n++
		}
		response := &pb.WatchResponse{Header: header, WatchId: id, Events: rest[:n:n],
			Fragment: n < len(rest)}
		if err := s.send(response); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}
