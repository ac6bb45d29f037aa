package passwords

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// ErrBusy says that as many of a party's passwords wait as may, or of all parties'.
var ErrBusy = errors.New("too many passwords wait to be checked")

// turns has a number of places. Parties that wait for one take turns.
type turns struct {
	// perParty and inAll bound how many wait.
	perParty, inAll int
	mu              struct {
		sync.Mutex
		free, waiting int
		queues        map[string][]chan struct{}
		// order is whose turn is next; each party that waits is in it once.
		order []string
	}
}

func newTurns(places, perParty, inAll int) *turns {
	t := &turns{perParty: perParty, inAll: inAll}
	t.mu.free, t.mu.queues = places, map[string][]chan struct{}{}
	return t
}

// enter waits for a place, until ctx ends. A caller that has entered has to leave.
func (t *turns) enter(ctx context.Context, party string) error {
	t.mu.Lock()
	queue := t.mu.queues[party]
	switch {
	case t.mu.free > 0: // then none waits
		t.mu.free--
		t.mu.Unlock()
		return nil
	case len(queue) >= t.perParty || t.mu.waiting >= t.inAll:
		t.mu.Unlock()
		return ErrBusy
	}
	if len(queue) == 0 {
		t.mu.order = append(t.mu.order, party)
	}
	turn := make(chan struct{})
	t.mu.queues[party] = append(queue, turn)
	t.mu.waiting++
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	queue = t.mu.queues[party]
	at := slices.Index(queue, turn)
	if at >= 0 {
		t.setQueueLocked(party, slices.Delete(queue, at, at+1))
		t.mu.waiting--
	}
	t.mu.Unlock()
	if at < 0 { // its turn came at the same moment
		t.leave()
	}
	return ctx.Err()
}

// leave gives the place to the caller that is next.
func (t *turns) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.order) == 0 {
		t.mu.free++
		return
	}
	party := t.mu.order[0]
	t.mu.order = t.mu.order[1:]
	queue := t.mu.queues[party]
	close(queue[0])
	t.mu.waiting--
	if len(queue) == 1 {
		delete(t.mu.queues, party)
		return
	}
	t.mu.queues[party] = queue[1:]
	t.mu.order = append(t.mu.order, party)
}

// setQueueLocked replaces what waits of a party.
func (t *turns) setQueueLocked(party string, queue []chan struct{}) {
	if len(queue) > 0 {
		t.mu.queues[party] = queue
		return
	}
	delete(t.mu.queues, party)
	t.mu.order = slices.DeleteFunc(t.mu.order, func(p string) bool { return p == party })
}
