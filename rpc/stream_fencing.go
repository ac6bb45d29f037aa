package rpc

import (
	"container/list"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A client that has given a stream up repeats its outstanding requests on a newer stream, perhaps
// to the same node. Requests of the old stream may still lie unread in a socket's buffer, and must
// not run after their repetitions. So each stream has a number, and:
//
// INVARIANT: when the first request of stream n has been delivered, no request of a stream of the
// same client below n is delivered any more, and no delivery of one is still in progress.
//
// The streams of a client share a turn. A stream takes the turn for each delivery, checks under it
// that no stream with a higher number has opened, and returns the turn when Handle has returned.
// Opening a stream raises the highest number first. So a delivery that saw the old number has
// finished before the newer stream, which needs the turn too, begins its own.
//
// The number is remembered after the last stream has ended, because an older stream may still
// arrive that was on its way.

const (
	// clientMemory is how long a client without streams is remembered at least, unless there are
	// more than maxIdleClients.
	clientMemory   = 10 * time.Minute
	maxIdleClients = 1 << 16
)

// clients is a BatchServer's state of its clients.
type clients struct {
	mu sync.Mutex
	// All fields are guarded by mu. idle holds the *clientTurn of clients without streams, longest
	// idle first.
	known   map[uint64]*clientTurn
	idle    *list.List
	streams int
}

// clientTurn is the state of one client.
type clientTurn struct {
	client uint64
	// turn has one token; its holder delivers. It is a channel and not a mutex because Handle may
	// wait.
	turn chan struct{}
	// highest is the highest stream number. It never falls.
	highest atomic.Uint64
	// Guarded by clients.mu.
	streams int
	// address is the address of the latest stream, and authorizer identifies its user; nil if there
	// are no users. Both are for display.
	address    string
	authorizer *authorizer
	idleSince  time.Time
	idle       *list.Element
}

func newClients() *clients {
	return &clients{known: make(map[uint64]*clientTurn), idle: list.New()}
}

// open admits a stream, which fences off the client's older streams from now on.
func (s *clients) open(hello *kvpb.Hello, limit int) (*clientTurn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams >= limit {
		return nil, status.Errorf(codes.ResourceExhausted,
			"this node serves %d streams already, its limit; try another", limit)
	}
	t := s.known[hello.Client]
	if t == nil {
		t = &clientTurn{client: hello.Client, turn: make(chan struct{}, 1)}
		s.known[hello.Client] = t
	} else if highest := t.highest.Load(); hello.Stream <= highest {
		return nil, status.Errorf(codes.Aborted,
			"stream %d of client %016x is fenced off by stream %d", hello.Stream, hello.Client,
			highest)
	}
	t.highest.Store(hello.Stream)
	t.streams++
	s.streams++
	if t.idle != nil {
		s.idle.Remove(t.idle)
		t.idle = nil
	}
	s.forgetLocked()
	return t, nil
}

// close ends a stream that open admitted.
func (s *clients) close(t *clientTurn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams--
	t.streams--
	if t.streams == 0 {
		t.idleSince, t.authorizer = time.Now(), nil
		t.idle = s.idle.PushBack(t)
	}
	s.forgetLocked()
}

// gone reports that the client has no open stream.
func (s *clients) gone(client uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.known[client]
	return t == nil || t.streams == 0
}

// identify stores the address of the client's latest stream, and its authorizer.
func (s *clients) identify(t *clientTurn, address string, a *authorizer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.address, t.authorizer = address, a
}

// identity returns the address of a client's latest stream, and its authorizer; "" and nil if no
// stream is open.
func (s *clients) identity(client uint64) (address string, a *authorizer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.known[client]; t != nil && t.streams > 0 {
		return t.address, t.authorizer
	}
	return "", nil
}

func (s *clients) forgetLocked() {
	for e := s.idle.Front(); e != nil; e = s.idle.Front() {
		t := e.Value.(*clientTurn)
		if s.idle.Len() <= maxIdleClients && time.Since(t.idleSince) < clientMemory {
			return
		}
		s.idle.Remove(e)
		delete(s.known, t.client)
	}
}

// deliver runs f in the client's turn, unless stream number has been fenced off.
func (t *clientTurn) deliver(ctx context.Context, number uint64, f func()) error {
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
	defer func() { <-t.turn }()
	if highest := t.highest.Load(); highest > number {
		return status.Errorf(codes.Aborted, "stream %d of client %016x is fenced off by stream %d",
			number, t.client, highest)
	}
	f()
	return nil
}
