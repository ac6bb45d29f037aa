package watches

import (
	"bytes"
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// autoID is the id in the request of a client that lets the server choose.
	autoID = 0
	// NoID is the id in a response about no watch, or about all watches.
	NoID = -1
)

// etcd's reasons why a watch was not created.
const (
	reasonEmpty     = "mvcc: watcher range is empty"
	reasonDuplicate = "mvcc: duplicate watch ID provided on the WatchStream"
)

// sender answers the requests of one stream and sends its events, in one goroutine: so the creation
// of a watch is answered before its first event. While a client does not read, the sender blocks,
// and the store keeps new events in a bounded queue, or in the database alone.
type sender struct {
	server   *Server
	rpc      watchRPC
	events   *watch.Stream
	requests *requests
	// stall fires if a Send takes too long.
	stall   *time.Timer
	watches map[int64]*watchState
	// nextID is where the search for a free id begins.
	nextID int64
	// asked is set if the client has asked for the progress of all watches, which must be at least
	// target.
	asked  bool
	target uint64
	// progress ticks while a watch wants to be notified.
	progress *time.Ticker
}

// watchState is the stream's state of a watch.
type watchState struct {
	fragment bool
	// notify is set if the client wants progress notifications; quiet if the watch has had no event
	// since the last tick.
	notify, quiet bool
	// ended is set if it has been cancelled, but not by the client.
	ended bool
	// held holds events of a revision that is not complete yet.
	held heldEvents
}

func newSender(w *Server, rpc watchRPC, events *watch.Stream,
	requests *requests, stalled func()) *sender {
	s := &sender{server: w, rpc: rpc, events: events, requests: requests,
		watches: map[int64]*watchState{}, stall: time.AfterFunc(w.config.StallTimeout, stalled)}
	s.stall.Stop()
	return s
}

// run serves the stream until it ends.
func (s *sender) run(ctx context.Context) error {
	defer s.stall.Stop()
	var tick <-chan time.Time
	defer func() {
		if s.progress != nil {
			s.progress.Stop()
		}
	}()
	for {
		sent, err := s.sendEvents()
		if err != nil {
			return err
		}
		if s.progress != nil {
			tick = s.progress.C
		}
		if sent {
			// Requests are served in between, but not waited for.
			select {
			case <-s.requests.ready:
				err = s.handle(s.requests.take(len(s.watches)))
			case <-tick:
				err = s.notify()
			case <-ctx.Done():
				return context.Cause(ctx)
			default:
			}
		} else {
			select {
			case <-s.requests.ready:
				err = s.handle(s.requests.take(len(s.watches)))
			case <-tick:
				err = s.notify()
			case <-s.events.Ready():
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
}

// send sends a response, and waits while the client does not read.
func (s *sender) send(r *pb.WatchResponse) error {
	s.stall.Reset(s.server.config.StallTimeout)
	defer s.stall.Stop()
	return s.rpc.Send(r)
}

// sendEvents sends the available events, and requested progress, and reports whether it sent
// anything.
func (s *sender) sendEvents() (sent bool, err error) {
	taken, err := s.events.Take()
	if err != nil {
		return false, err
	}
	for _, d := range taken {
		if err := s.deliver(d); err != nil {
			return false, err
		}
	}
	if len(taken) > 0 || !s.asked {
		return len(taken) > 0, nil
	}
	revision, ok := s.events.Progress(s.target)
	if !ok {
		return false, nil // Ready will signal
	}
	s.asked = false
	return true, s.send(&pb.WatchResponse{Header: s.server.header(revision),
		WatchId: NoID})
}

// handle serves a request; nil is ignored.
func (s *sender) handle(r *pb.WatchRequest) error {
	switch r := r.GetRequestUnion().(type) {
	case *pb.WatchRequest_CreateRequest:
		if r.CreateRequest != nil {
			return s.create(r.CreateRequest)
		}
	case *pb.WatchRequest_CancelRequest:
		if r.CancelRequest != nil {
			return s.cancel(r.CancelRequest.WatchId)
		}
	case *pb.WatchRequest_ProgressRequest:
		if r.ProgressRequest != nil && len(s.watches) > 0 {
			s.asked, s.target = true, s.events.Head()
		}
	}
	return nil // etcd ignores other requests, too
}

// watchedSpan returns the span that a request watches; ok is false if it watches nothing.
func watchedSpan(key, end []byte) (span keys.Span, ok bool) {
	if len(key) == 0 {
		key = []byte{0}
	}
	switch {
	case len(end) == 0:
		return keys.Point(key), true
	case bytes.Equal(end, []byte{0}):
		return keys.Span{Start: key}, true
	}
	span = keys.Span{Start: key, End: end}
	return span, !span.Empty()
}

// create begins a watch, or answers why not.
func (s *sender) create(r *pb.WatchCreateRequest) error {
	span, ok := watchedSpan(r.Key, r.RangeEnd)
	switch {
	case r.StartRevision < 0:
		return s.refuse(rpctypes.ErrCompacted.Error())
	case !ok:
		return s.refuse(reasonEmpty)
	}
	id := r.WatchId
	if id == autoID {
		for s.watches[s.nextID] != nil {
			s.nextID++
		}
		id = s.nextID
	}
	o := watch.Options{Span: span, From: uint64(r.StartRevision), Previous: r.PrevKv}
	for _, f := range r.Filters {
		o.NoPut = o.NoPut || f == pb.WatchCreateRequest_NOPUT
		o.NoDelete = o.NoDelete || f == pb.WatchCreateRequest_NODELETE
	}
	revision, err := s.events.Add(id, o)
	switch {
	case errors.Is(err, watch.ErrExists):
		return s.refuse(reasonDuplicate)
	case errors.Is(err, watch.ErrTooMany):
		return s.refuse("etcdserver: " + err.Error())
	case err != nil:
		return err
	}
	if r.WatchId == autoID {
		s.nextID++
	}
	s.watches[id] = &watchState{fragment: r.Fragment, notify: r.ProgressNotify, quiet: true}
	if r.ProgressNotify && s.progress == nil {
		interval, err := s.server.progressInterval()
		if err != nil {
			return err
		}
		s.progress = time.NewTicker(interval)
	}
	return s.send(&pb.WatchResponse{Header: s.server.header(revision), WatchId: id, Created: true})
}

// refuse answers that a watch was not created.
func (s *sender) refuse(reason string) error {
	return s.send(&pb.WatchResponse{Header: s.server.header(s.events.Head()),
		WatchId: NoID, Created: true, Canceled: true, CancelReason: reason})
}

// cancel ends a watch for its client. As in etcd, there is no answer for an unknown watch.
func (s *sender) cancel(id int64) error {
	w := s.watches[id]
	if w == nil {
		return nil
	}
	delete(s.watches, id)
	if err := s.events.Remove(id); err != nil && !errors.Is(err, watch.ErrUnknown) {
		return err
	}
	return s.send(&pb.WatchResponse{Header: s.server.header(s.events.Head()), WatchId: id,
		Canceled: true})
}

// notify sends progress to the watches that want it and have had no event for a while.
func (s *sender) notify() error {
	for id, w := range s.watches {
		if !w.notify {
			continue
		}
		quiet := w.quiet
		w.quiet = true
		if !quiet {
			continue
		}
		if revision, ok := s.events.ProgressOf(id); ok && len(w.held.events) == 0 {
			err := s.send(&pb.WatchResponse{Header: s.server.header(revision), WatchId: id})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
