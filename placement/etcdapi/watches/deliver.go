package watches

import (
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// heldEvents are events taken from the store, with their size in a response.
type heldEvents struct {
	events []*mvccpb.Event
	bytes  int
}

// eventOverhead is the least overhead of an event in a response.
const eventOverhead = 8

func fromEvent(e watch.Event) *mvccpb.Event {
	event := &mvccpb.Event{Kv: translate.FromKeyValue(e.KV), PrevKv: translate.FromKeyValue(e.Previous)}
	if e.Deleted() {
		event.Type = mvccpb.Event_DELETE
	}
	return event
}

// deliver sends the events of one watch: all of a revision at once, and of several revisions as
// many as fit into a response.
func (s *sender) deliver(d watch.Delivery) error {
	w := s.watches[d.ID]
	if w == nil || w.ended {
		return nil
	}
	for _, e := range d.Events {
		event := fromEvent(e)
		size := proto.Size(event) + eventOverhead
		// INVARIANT: when a revision begins, all events of the revisions before are held, so a
		// response never ends within a revision.
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
	// As in etcd, the header has no revision.
	return s.end(d.ID, w, &pb.WatchResponse{Header: s.server.header(0),
		CompactRevision: int64(d.Compacted)})
}

// end cancels a watch. The client may still cancel it too, and its id is in use until the client
// does.
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

// sendHeld sends the held events of a watch, in fragments if the client accepts them. revision is
// the header's; 0: the revision of the last event.
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
