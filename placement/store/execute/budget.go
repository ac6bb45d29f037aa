package execute

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// budget bounds the commands that were proposed and of which this member does not know yet what
// becomes of them, in number and in bytes. They are in the log of a leader that may be unable to
// commit, whether their callers still wait or not; if they came to more than Raft lets a leader
// have, it would have to give its leadership up.
//
// Clients that wait have the budget in turns, a command each. So one that asks for much has all of
// it as long as no other wants any, and the others wait for one command to end, not for all of that
// client's that came before theirs.
type budget struct {
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

// waiter is a command that waits. admitted is closed when it has its part of the budget.
type waiter struct {
	weight   int64
	admitted chan struct{}
}

func newBudget(commands, bytes int64) *budget {
	b := &budget{maxCommands: commands, maxBytes: bytes}
	b.mu.clients = map[string]*turn{}
	return b
}

// enter takes the part of the budget that a command of a client needs, and waits for it until ctx
// ends.
func (b *budget) enter(ctx context.Context, client string, size int) error {
	weight := b.weight(size)
	b.mu.Lock()
	if len(b.mu.turns) == 0 && b.fits(weight) && ctx.Err() == nil {
		b.take(weight)
		b.mu.Unlock()
		return nil
	}
	w := &waiter{weight, make(chan struct{})}
	t := b.mu.clients[client]
	if t == nil {
		t = &turn{client: client}
		b.mu.clients[client] = t
		b.mu.turns = append(b.mu.turns, t)
	}
	t.waiting = append(t.waiting, w)
	b.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(t.waiting, w); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
		b.forgetLocked(t)
	} else {
		b.giveBack(weight) // it was admitted at the same time
	}
	b.admitLocked()
	b.refusals.Add(1)
	return fmt.Errorf("%w: %d commands with %d bytes wait already, the limits are %d and %d: %w",
		command.ErrOverloaded, b.heldCommands.Load(), b.heldBytes.Load(), b.maxCommands, b.maxBytes,
		ctx.Err())
}

func (b *budget) leave(size int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.giveBack(b.weight(size))
	b.admitLocked()
}

// admitLocked lets in the commands whose turn it is. A command that needs more than is left has all
// others wait for it.
func (b *budget) admitLocked() {
	for len(b.mu.turns) > 0 {
		t := b.mu.turns[0]
		w := t.waiting[0]
		if !b.fits(w.weight) {
			return
		}
		b.take(w.weight)
		close(w.admitted)
		t.waiting = t.waiting[1:]
		b.mu.turns = append(b.mu.turns[1:], t)
		b.forgetLocked(t)
	}
}

// forgetLocked forgets a client that waits no more.
func (b *budget) forgetLocked(t *turn) {
	if len(t.waiting) > 0 {
		return
	}
	delete(b.mu.clients, t.client)
	b.mu.turns = slices.DeleteFunc(b.mu.turns, func(o *turn) bool { return o == t })
}

func (b *budget) fits(weight int64) bool {
	return b.heldCommands.Load() < b.maxCommands && b.heldBytes.Load()+weight <= b.maxBytes
}

func (b *budget) take(weight int64) {
	b.heldCommands.Add(1)
	b.heldBytes.Add(weight)
}

func (b *budget) giveBack(weight int64) {
	b.heldCommands.Add(-1)
	b.heldBytes.Add(-weight)
}

// weight is what a command takes. One that is larger than all there is has all of it.
func (b *budget) weight(size int) int64 { return min(int64(size), b.maxBytes) }

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
