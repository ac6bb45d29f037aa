package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// room bounds the commands that were proposed and of which this member does not know yet what
// becomes of them, in number and in bytes. They are in the log of a leader that may be unable to
// commit, whether their callers still wait or not; if they came to more than Raft lets a leader
// have, it would have to give its leadership up.
//
// Clients that wait for room have it in turns, a command each. So one that asks for much has all of
// the room as long as no other wants any, and others wait for a command to end, and not for all
// of that client's that came before theirs.
type room struct {
	maxCommands, maxBytes   int64
	heldCommands, heldBytes atomic.Int64 // changed with mu held
	refusals                atomic.Int64
	mu                      struct {
		sync.Mutex
		// turns are the clients that wait, in the order in which they have their turns.
		turns   []*turn
		clients map[string]*turn
	}
}

// turn is a client that waits, with its commands in their order.
type turn struct {
	client  string
	waiting []*waiter
}

// waiter is a command that waits. admitted is closed when it has its room.
type waiter struct {
	weight   int64
	admitted chan struct{}
}

func newRoom(commands, bytes int64) *room {
	r := &room{maxCommands: commands, maxBytes: bytes}
	r.mu.clients = map[string]*turn{}
	return r
}

// enter waits for room for a command of a client.
func (r *room) enter(ctx context.Context, client string, size int) error {
	weight := r.weight(size)
	r.mu.Lock()
	if len(r.mu.turns) == 0 && r.fits(weight) && ctx.Err() == nil {
		r.take(weight)
		r.mu.Unlock()
		return nil
	}
	w := &waiter{weight, make(chan struct{})}
	t := r.mu.clients[client]
	if t == nil {
		t = &turn{client: client}
		r.mu.clients[client] = t
		r.mu.turns = append(r.mu.turns, t)
	}
	t.waiting = append(t.waiting, w)
	r.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		r.forgetLocked(t)
	} else {
		r.giveBack(weight) // it was admitted at the same time
	}
	r.admitLocked()
	r.refusals.Add(1)
	return fmt.Errorf("%w: %d commands with %d bytes wait already, the limits are %d and %d: %w",
		ErrOverloaded, r.heldCommands.Load(), r.heldBytes.Load(), r.maxCommands, r.maxBytes,
		ctx.Err())
}

func (r *room) leave(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.giveBack(r.weight(size))
	r.admitLocked()
}

// admitLocked gives room to those whose turn it is. One that needs more than there is, is waited
// for.
func (r *room) admitLocked() {
	for len(r.mu.turns) > 0 {
		t := r.mu.turns[0]
		w := t.waiting[0]
		if !r.fits(w.weight) {
			return
		}
		r.take(w.weight)
		close(w.admitted)
		t.waiting = t.waiting[1:]
		r.mu.turns = append(r.mu.turns[1:], t)
		r.forgetLocked(t)
	}
}

// forgetLocked forgets a client that waits no more.
func (r *room) forgetLocked(t *turn) {
	if len(t.waiting) > 0 {
		return
	}
	delete(r.mu.clients, t.client)
	r.mu.turns = slices.DeleteFunc(r.mu.turns, func(o *turn) bool { return o == t })
}

func (r *room) fits(weight int64) bool {
	return r.heldCommands.Load() < r.maxCommands && r.heldBytes.Load()+weight <= r.maxBytes
}

func (r *room) take(weight int64) {
	r.heldCommands.Add(1)
	r.heldBytes.Add(weight)
}

func (r *room) giveBack(weight int64) {
	r.heldCommands.Add(-1)
	r.heldBytes.Add(-weight)
}

// weight is what a command takes. One that is larger than all there is has all of it.
func (r *room) weight(size int) int64 { return min(int64(size), r.maxBytes) }

type clientKey struct{}

// WithClient says on whose behalf Do and Execute are called. Those that wait for room have it in
// turns by client. Callers that do not say it are one client.
func WithClient(ctx context.Context, client string) context.Context {
	return context.WithValue(ctx, clientKey{}, client)
}

func clientOf(ctx context.Context) string {
	client, _ := ctx.Value(clientKey{}).(string)
	return client
}
