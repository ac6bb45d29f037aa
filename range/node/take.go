package node

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Take takes over a batch of requests of one client; it is rpc.BatchServerConfig.Take. The requests belong to the node from here
// on, the slice stays the caller's. Each request is answered once, from any goroutine, possibly before Take returns. The writes of
// a batch reach their partitions in their order, and before Take returns; what may wait for the disk is in the Work that it returns.
// Requests that name timestamps which this node's clock cannot take in yet are put aside (see ahead).
func (n *Node) Take(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) rpc.Work {
	now := time.Now()
	if n.health.refusal.Load() == nil {
		if batch = n.putAside(client, batch, reply, now); len(batch) == 0 {
			return nil
		}
	}
	return n.take(client, batch, reply, now)
}

// take is Take without that; now is when the requests arrived.
func (n *Node) take(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response), now time.Time) rpc.Work {
	if r := n.health.refusal.Load(); r != nil {
		for _, q := range batch {
			n.refuse(q, r.code, r.message, reply)
		}
		return nil
	}
	n.shared.Asked(batch, now)
	s := sortings.Get().(*sorting)
	if len(batch) == 1 {
		if h, own := n.route(client, batch[0], now, reply); h != nil || own {
			s.groups = append(s.groups, sorted{h: h, node: n})
			s.pending = append(s.pending[:0], replica.Pending{Client: client, Request: batch[0], Reply: reply, Arrived: now})
			s.groups[0].requests = s.pending
		}
	} else {
		s.begin(len(batch))
		for i, q := range batch {
			if h, own := n.route(client, q, now, reply); h != nil {
				s.add(h, int32(i))
			} else if own {
				s.next[i] = -1
				s.groups = append(s.groups, sorted{node: n, first: int32(i), last: int32(i)})
			}
		}
		s.pending = slices.Grow(s.pending[:0], len(batch))
		for i := range s.groups {
			g := &s.groups[i]
			from := len(s.pending)
			for at := g.first; at >= 0; at = s.next[at] {
				s.pending = append(s.pending, replica.Pending{Client: client, Request: batch[at], Reply: reply, Arrived: now})
			}
			g.requests = s.pending[from:]
		}
	}
	left, writes := false, 0
	for i := range s.groups {
		g := &s.groups[i]
		if g.open = g.h == nil; !g.open {
			g.queued, g.open = g.h.replica.Take(g.requests)
		}
		left = left || g.open
		if g.open && g.queued {
			writes++
		}
	}
	if !left {
		s.release()
		return nil
	}
	s.node, s.writes = n, writes
	s.evaluated.Store(0)
	s.begun.Store(0)
	return s
}

// Handle takes over a batch and does what is left.
func (n *Node) Handle(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
	if work := n.Take(client, batch, reply); work != nil {
		work.Run()
		work.Done()
	}
}

// Run implements rpc.Work: a piece of work is the writes to one replica; or what else one was asked, or the node. All writes come first: they
// travel while the reads are answered, and what is proposed to several groups travels together.
func (s *sorting) Run() {
	if s.writes > 0 {
		s.evaluate()
	}
	for {
		i := int(s.begun.Add(1)) - 1
		if i >= len(s.groups) {
			return
		}
		switch g := &s.groups[i]; {
		case !g.open:
		case g.h == nil:
			g.node.multiGet(g.requests[0])
		default:
			g.h.replica.Serve(g.requests)
		}
	}
}

// evaluate evaluates writes, and has the groups stepped together. If somebody is held up over one of them, whoever relieves him has those groups
// stepped for which he has proposed.
func (s *sorting) evaluate() {
	if s.writes > 1 {
		if s.evaluated.Load() > 0 {
			s.step() // somebody is held up who has proposed
		}
		defer s.step()
	}
	began := time.Now()
	for {
		i := int(s.evaluated.Add(1)) - 1
		if i >= len(s.groups) {
			return
		}
		g := &s.groups[i]
		if !g.open || !g.queued {
			continue
		}
		g.h.replica.Evaluate(g.requests[0].Client, s.writes > 1)
		if s.writes == 1 {
			return
		}
		if now := time.Now(); now.Sub(began) > mostTogether {
			s.step()
			began = now
		}
	}
}

// mostTogether is how long what was proposed for one replica waits while the writes of others are evaluated.
const mostTogether = 200 * time.Microsecond

// step has the groups stepped that anybody has proposed to for this batch.
func (s *sorting) step() {
	s.node.host.Step(func(yield func(*host.Group) bool) {
		for i := range s.groups {
			if g := &s.groups[i]; g.open && g.queued && !yield(g.h.group) {
				return
			}
		}
	})
}

// Done implements rpc.Work.
func (s *sorting) Done() { s.release() }

// sorting groups the requests of a batch by replica: lists of indexes, and a small open-addressed table of the lists.
type sorting struct {
	groups  []sorted
	next    []int32
	slots   []int32 // 1 + index into groups
	pending []replica.Pending
	// writes is to how many replicas there are writes. Of evaluated and begun groups somebody evaluates the writes, or serves the rest, or
	// has done so.
	node             *Node
	writes           int
	evaluated, begun atomic.Int32
}

// sorted is one replica's requests: the list of their indexes, and then they themselves, in pending. Or one request that the node answers.
type sorted struct {
	// h is nil for the node's.
	h           *hosted
	node        *Node
	first, last int32
	requests    []replica.Pending
	// open: the replica has taken them and is to serve them, or the node; queued: with writes.
	queued, open bool
}

var sortings = sync.Pool{New: func() any { return new(sorting) }}

// begin makes room for n requests.
func (s *sorting) begin(n int) {
	slots := 8
	for slots < 2*n {
		slots *= 2
	}
	if cap(s.slots) < slots {
		s.slots = make([]int32, slots)
	}
	s.slots = s.slots[:slots]
	if cap(s.next) < n {
		s.next = make([]int32, n)
	}
	s.next = s.next[:n]
}

// add appends a request to its replica's list.
func (s *sorting) add(h *hosted, index int32) {
	s.next[index] = -1
	mask := uint64(len(s.slots) - 1)
	for at := uint64(h.id) * 0x9e3779b97f4a7c15 >> 32 & mask; ; at = (at + 1) & mask {
		slot := s.slots[at]
		if slot == 0 {
			s.groups = append(s.groups, sorted{h: h, first: index, last: index})
			s.slots[at] = int32(len(s.groups))
			return
		}
		if g := &s.groups[slot-1]; g.h == h {
			s.next[g.last] = index
			g.last = index
			return
		}
	}
}

// maxKeptSorting bounds what is kept for the next batch.
const maxKeptSorting = 4096

func (s *sorting) release() {
	clear(s.slots)
	clear(s.groups)
	clear(s.pending)
	s.groups, s.pending = s.groups[:0], s.pending[:0]
	if cap(s.next) <= maxKeptSorting && cap(s.pending) <= maxKeptSorting {
		sortings.Put(s)
	}
}
