package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
)

// pass is one message of a client on its way through a node. Its requests are grouped by replica,
// and go through the same steps:
//
//	Submit     writes are queued, in their order; nothing waits for a disk
//	Run        writes are evaluated, replica by replica; proposals are left in the pass
//	step       all groups with proposals are stepped: one append, one sync, one message for
//	           each peer
//	Run        the rest is served, replica by replica
//
// A pass is an rpc.Work. While one piece of it waits for a disk, another goroutine calls Run as
// well, and continues after that piece: counters say which piece is next.
type pass struct {
	node   *Node
	client uint64
	// portions are the replicas for which the message has requests.
	portions []portion
	routing  routing
	// requests are the requests of all portions, one portion after the other.
	requests []config.Pending
	// writes counts the portions that have queued writes.
	writes int
	// evaluated counts the portions whose evaluation has begun, served those of which the rest has.
	evaluated, served atomic.Int32
}

// portion is the part of a message for one replica, or a request that the node answers itself. It
// is a replica.Pass.
type portion struct {
	pass *pass
	// hosted is nil if the node answers.
	hosted *hosted.Replica
	// first and last are the ends of the list of its requests, by their index in the message.
	first, last int32
	requests    []config.Pending
	// open is set if the replica, or the node, is to serve it; queued if it has queued writes.
	open, queued bool
}

var passes = sync.Pool{New: func() any { return new(pass) }}

// take passes the requests to their replicas. It returns false if nothing is left to do.
func (p *pass) take() (left bool) {
	for i := range p.portions {
		part := &p.portions[i]
		if part.open = part.hosted == nil; !part.open {
			if s := part.hosted.Load.Sampling.Load(); s != nil {
				s.Note(part.requests)
			}
			part.queued, part.open = part.hosted.Replica.Take(part.requests)
		}
		left = left || part.open
		if part.open && part.queued {
			p.writes++
		}
	}
	return left
}

// Run implements rpc.Work: it does what no goroutine has begun. All writes come first: they travel
// while the rest is served.
func (p *pass) Run() {
	if p.writes > 0 {
		p.evaluate()
	}
	for {
		i := int(p.served.Add(1)) - 1
		if i >= len(p.portions) {
			return
		}
		switch part := &p.portions[i]; {
		case !part.open:
		case part.hosted == nil:
			part.requests[0].Timing.Enter(timing.Evaluate)
			p.node.multiGet(part.requests[0])
		default:
			began := time.Now()
			part.hosted.Replica.Serve(part.requests, began)
			part.hosted.Load.Serving(began)
		}
	}
}

// evaluate evaluates the writes, portion by portion. It steps the groups at the end, and when the
// first proposal has waited for mostPass. With writes for one portion only there is nothing to wait
// for: the group is stepped with the proposal.
func (p *pass) evaluate() {
	if p.writes > 1 {
		if p.evaluated.Load() > 0 {
			p.step() // another goroutine is held up, perhaps with proposals that are not stepped
		}
		defer p.step()
	}
	began := time.Now()
	for {
		i := int(p.evaluated.Add(1)) - 1
		if i >= len(p.portions) {
			return
		}
		part := &p.portions[i]
		if !part.open || !part.queued {
			continue
		}
		if p.writes == 1 {
			part.hosted.Replica.Evaluate(nil)
			part.hosted.Load.Serving(began)
			return
		}
		evaluating := time.Now()
		part.hosted.Replica.Evaluate(part)
		now := time.Now()
		part.hosted.Load.Led.Add(int64(now.Sub(evaluating)))
		if now.Sub(began) > mostPass {
			p.step()
			began = now
		}
	}
}

// mostPass is the longest time that a proposal waits while the writes of other replicas are
// evaluated.
const mostPass = 200 * time.Microsecond

// step steps the groups with proposals of the pass.
func (p *pass) step() {
	p.node.host.Step(func(yield func(*host.Group) bool) {
		for i := range p.portions {
			if part := &p.portions[i]; part.open && part.queued && !yield(part.hosted.Group) {
				return
			}
		}
	})
}

// Client implements replica.Pass.
func (part *portion) Client() uint64 { return part.pass.client }

// Propose implements replica.Pass.
func (part *portion) Propose(term uint64, data []byte) error {
	return part.hosted.Group.ProposeInPass(term, data)
}

// Done implements rpc.Work.
func (p *pass) Done() { p.release() }

// maxKeptPass bounds the requests for which a pass keeps its memory for the next message.
const maxKeptPass = 4096

func (p *pass) release() {
	kept := cap(p.requests) <= maxKeptPass && p.routing.forget()
	clear(p.portions)
	clear(p.requests)
	p.portions, p.requests = p.portions[:0], p.requests[:0]
	p.node, p.writes = nil, 0
	p.evaluated.Store(0)
	p.served.Store(0)
	if kept {
		passes.Put(p)
	}
}
