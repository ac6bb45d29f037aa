package node

import (
	"slices"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// routing groups the requests of a message by replica: a list of indexes for each portion, and a
// small open-addressed table of the portions.
type routing struct {
	// next is, for each request, the index of the next request of the same portion; -1: the last.
	next []int32
	// slots hold 1 + the index into the pass's portions.
	slots []int32
}

// begin makes room for n requests.
func (r *routing) begin(n int) {
	slots := 8
	for slots < 2*n {
		slots *= 2
	}
	if cap(r.slots) < slots {
		r.slots = make([]int32, slots)
	}
	r.slots = r.slots[:slots]
	if cap(r.next) < n {
		r.next = make([]int32, n)
	}
	r.next = r.next[:n]
}

// forget empties the table; false if the table is too large to be kept.
func (r *routing) forget() bool {
	clear(r.slots)
	return cap(r.next) <= maxKeptPass
}

// arrivals are the requests of a pass: those of one message, or those that have waited to begin.
type arrivals struct {
	// batch are the requests of a message, and template holds what they have in common.
	batch    []*kvpb.Request
	template config.Pending
	// waited are the requests that have waited; batch is empty then.
	waited []config.Pending
}

func (a *arrivals) len() int { return len(a.batch) + len(a.waited) }

func (a *arrivals) at(i int) config.Pending {
	if len(a.waited) > 0 {
		return a.waited[i]
	}
	pending := a.template
	pending.Request = a.batch[i]
	return pending
}

// route groups the requests of a pass, and answers those that belong to no portion.
func (p *pass) route(all arrivals) {
	if all.len() == 1 {
		pending := all.at(0)
		if h, own := p.node.route(pending); h != nil || own {
			pending.Timing = p.node.slow.Begin(pending.Arrived)
			p.requests = append(p.requests, pending)
			p.portions = append(p.portions, portion{pass: p, hosted: h, requests: p.requests})
		}
		return
	}
	p.routing.begin(all.len())
	for i := range all.len() {
		if h, own := p.node.route(all.at(i)); h != nil {
			p.add(h, int32(i))
		} else if own {
			p.routing.next[i] = -1
			p.portions = append(p.portions, portion{pass: p, first: int32(i), last: int32(i)})
		}
	}
	p.requests = slices.Grow(p.requests, all.len())
	for i := range p.portions {
		part := &p.portions[i]
		from := len(p.requests)
		for at := part.first; at >= 0; at = p.routing.next[at] {
			pending := all.at(int(at))
			pending.Timing = p.node.slow.Begin(pending.Arrived)
			p.requests = append(p.requests, pending)
		}
		part.requests = p.requests[from:]
	}
}

// add appends a request to its replica's list.
func (p *pass) add(h *hosted.Replica, index int32) {
	r := &p.routing
	r.next[index] = -1
	mask := uint64(len(r.slots) - 1)
	for at := uint64(h.ID) * 0x9e3779b97f4a7c15 >> 32 & mask; ; at = (at + 1) & mask {
		slot := r.slots[at]
		if slot == 0 {
			p.portions = append(p.portions, portion{pass: p, hosted: h, first: index, last: index})
			r.slots[at] = int32(len(p.portions))
			return
		}
		if part := &p.portions[slot-1]; part.hosted == h {
			r.next[part.last] = index
			part.last = index
			return
		}
	}
}
