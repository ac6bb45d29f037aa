// Package fairshare bounds the calls that run at a time, in number and in bytes, and admits waiting
// parties in turns, one call each. So a party that asks for much may use everything as long as no
// other party waits, and the others wait until one call ends, not until all calls of that party
// have.
//
// Share.mu is a leaf. The package imports nothing of Tidemark.
package fairshare

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// ErrBusy says that the bound on waiting calls is reached, of a party or of all.
var ErrBusy = errors.New("too many calls wait")

// Limits are the bounds of a Share. A field that is 0 bounds nothing.
type Limits struct {
	// Calls and Bytes bound the running calls, in number and in total size.
	Calls, Bytes int64
	// PartyWaits and AllWait bound the waiting calls of a party, and of all parties.
	PartyWaits, AllWait int
}

// Share is the resource that calls share. It is safe for concurrent use.
type Share struct {
	limits       Limits
	calls, bytes atomic.Int64 // changed with mu held
	refused      atomic.Int64
	mu           struct {
		sync.Mutex
		// turns lists the parties that wait, in the order of their turns.
		turns   []*party
		parties map[string]*party
		waiting int
	}
}

// party is a party that waits, with its calls in their order.
type party struct {
	name  string
	calls []*call
}

// call is a call that waits. admitted is closed when it may run.
type call struct {
	size     int64
	admitted chan struct{}
}

// New returns a Share without calls.
func New(limits Limits) *Share {
	if limits.Bytes == 0 {
		limits.Bytes = math.MaxInt64
	}
	s := &Share{limits: limits}
	s.mu.parties = map[string]*party{}
	return s
}

// Enter admits a call of a party, which Leave ends. It waits until ctx ends, and then returns the
// error of ctx. A call that is larger than the bound takes everything.
func (s *Share) Enter(ctx context.Context, name string, size int) error {
	part := s.partOf(size)
	s.mu.Lock()
	if len(s.mu.turns) == 0 && s.fits(part) && ctx.Err() == nil {
		s.take(part)
		s.mu.Unlock()
		return nil
	}
	p := s.mu.parties[name]
	if l := s.limits; l.AllWait > 0 && s.mu.waiting >= l.AllWait ||
		l.PartyWaits > 0 && p != nil && len(p.calls) >= l.PartyWaits {
		s.mu.Unlock()
		s.refused.Add(1)
		return ErrBusy
	}
	if p == nil {
		p = &party{name: name}
		s.mu.parties[name] = p
		s.mu.turns = append(s.mu.turns, p)
	}
	c := &call{part, make(chan struct{})}
	p.calls = append(p.calls, c)
	s.mu.waiting++
	s.mu.Unlock()
	select {
	case <-c.admitted:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(p.calls, c); i >= 0 {
		p.calls = slices.Delete(p.calls, i, i+1)
		s.mu.waiting--
		s.forgetLocked(p)
	} else {
		s.giveBack(c.size) // it was admitted at the same time
	}
	s.admitLocked()
	s.refused.Add(1)
	return ctx.Err()
}

// Leave ends a call of that size.
func (s *Share) Leave(size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(s.partOf(size))
	s.admitLocked()
}

// Held returns the number of running calls, and their bytes.
func (s *Share) Held() (calls, bytes int64) { return s.calls.Load(), s.bytes.Load() }

// Refused returns how many calls were not admitted.
func (s *Share) Refused() int64 { return s.refused.Load() }

// admitLocked admits the calls whose turn it is. A call that needs more than is free makes all
// others wait for it.
func (s *Share) admitLocked() {
	for len(s.mu.turns) > 0 {
		p := s.mu.turns[0]
		c := p.calls[0]
		if !s.fits(c.size) {
			return
		}
		s.take(c.size)
		close(c.admitted)
		s.mu.waiting--
		p.calls = p.calls[1:]
		s.mu.turns = append(s.mu.turns[1:], p)
		s.forgetLocked(p)
	}
}

// forgetLocked forgets a party that no longer waits.
func (s *Share) forgetLocked(p *party) {
	if len(p.calls) > 0 {
		return
	}
	delete(s.mu.parties, p.name)
	s.mu.turns = slices.DeleteFunc(s.mu.turns, func(o *party) bool { return o == p })
}

func (s *Share) fits(size int64) bool {
	return (s.limits.Calls == 0 || s.calls.Load() < s.limits.Calls) &&
		s.bytes.Load()+size <= s.limits.Bytes
}

func (s *Share) take(size int64) {
	s.calls.Add(1)
	s.bytes.Add(size)
}

func (s *Share) giveBack(size int64) {
	s.calls.Add(-1)
	s.bytes.Add(-size)
}

func (s *Share) partOf(size int) int64 { return min(int64(size), s.limits.Bytes) }
