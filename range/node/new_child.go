package node

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// The replica of a child beside the parent's leader asks for votes as soon as it is made, and again
// until it leads: the other replicas are made when they hear that the split is committed.
//
// Clients hear of the child from this node, and ask it first which node leads the child. They are
// answered when a leader is known, a few milliseconds later. If they heard that there is no leader,
// they would ask the other nodes in vain, and then wait for longer than that before they asked
// again.

const (
	// campaignPeriod is the time between two campaigns of a new child, campaignTries their number.
	// After that the child is one of many groups without a leader.
	campaignPeriod = 20 * time.Millisecond
	campaignTries  = 100
	// patientTries is the number of campaigns after which waiting requests hear that there is no
	// leader.
	patientTries = 10
	// mostAsked bounds the requests that wait on a node.
	mostAsked = 1024
)

// newChildren are the replicas of new children that are to lead and have not led yet.
type newChildren struct {
	node *Node
	wake task.Signal
	mu   struct {
		sync.Mutex
		all    map[*hosted.Replica]*newChild
		asked  int
		closed bool
	}
}

// newChild is the state of a new child.
type newChild struct {
	// tried counts the campaigns; next is the time of the next one.
	tried int
	next  time.Time
	asked []config.Pending
}

func (y *newChildren) init(n *Node) {
	y.node, y.wake = n, task.NewSignal()
	y.mu.all = make(map[*hosted.Replica]*newChild)
}

// add starts the campaigns of a replica that was just made.
func (y *newChildren) add(h *hosted.Replica) {
	y.mu.Lock()
	y.mu.all[h] = &newChild{}
	y.mu.Unlock()
	y.wake.Send()
}

// ask holds a request until a leader is known; it returns false if the request must not be held.
//
// INVARIANT: a request that is held names no term. So no replica executes it if it is a write: its
// sender only wants to know which node leads. An attempt that could run later than its sender
// expects would be an error (range/node/clocks, future_reads.go).
func (y *newChildren) ask(h *hosted.Replica, pending config.Pending) bool {
	if pending.Request.Term != 0 {
		return false
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	of := y.mu.all[h]
	if of == nil || of.tried > patientTries || y.mu.asked >= mostAsked || y.mu.closed {
		return false
	}
	pending.Request = wire.CloneRequest(pending.Request)
	of.asked = append(of.asked, pending)
	y.mu.asked++
	return true
}

// run starts campaigns, and answers requests that were held.
func (y *newChildren) run(ctx context.Context) {
	defer y.close()
	for {
		again, ready := y.campaign()
		for _, pending := range ready {
			y.node.Resume(pending)
		}
		var due <-chan time.Time
		if again > 0 {
			due = time.After(again)
		}
		select {
		case <-ctx.Done():
			return
		case <-y.wake:
		case <-due:
		}
	}
}

// campaign starts the campaigns that are due. It returns the time until the next, 0 if there is
// none, and the requests that need not wait any longer.
func (y *newChildren) campaign() (again time.Duration, ready []config.Pending) {
	n, now := y.node, time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	for h, of := range y.mu.all {
		leader, _ := h.Group.Leader()
		switch {
		case leader != 0 || h.Removed.Load() || h.Group.Failed() != nil || n.host.Leaving():
			ready = append(ready, y.forgetLocked(h)...)
			continue
		case of.tried == campaignTries || !n.health.Fit():
			ready = append(ready, y.forgetLocked(h)...)
			n.elections.Add(h)
			continue
		}
		if !now.Before(of.next) {
			of.tried, of.next = of.tried+1, now.Add(campaignPeriod)
			n.elections.Campaign(h)
		}
		if of.tried > patientTries {
			ready = append(ready, y.answeredLocked(of)...)
		}
		if left := of.next.Sub(now); again == 0 || left < again {
			again = left
		}
	}
	return again, ready
}

// forgetLocked removes a replica, and returns the requests that were held for it.
func (y *newChildren) forgetLocked(h *hosted.Replica) []config.Pending {
	of := y.mu.all[h]
	delete(y.mu.all, h)
	h.Split.Campaigning.Store(false)
	return y.answeredLocked(of)
}

func (y *newChildren) answeredLocked(of *newChild) []config.Pending {
	asked := of.asked
	of.asked = nil
	y.mu.asked -= len(asked)
	return asked
}

// forget drops a replica that is being removed.
func (y *newChildren) forget(h *hosted.Replica) {
	if h.Split.Campaigning.Load() {
		y.wake.Send() // run answers the requests that were held
	}
}

// close refuses the requests that are held, and holds no more.
func (y *newChildren) close() {
	y.mu.Lock()
	y.mu.closed = true
	var held []config.Pending
	for h := range y.mu.all {
		held = append(held, y.forgetLocked(h)...)
	}
	y.mu.Unlock()
	for _, pending := range held {
		y.node.refuse(pending.Request, kvpb.ErrorCode_NODE_UNHEALTHY, "the node is closing",
			pending.Reply)
	}
}

// Resume continues a request that was held; it implements clocks.Server.
func (n *Node) Resume(pending config.Pending) {
	batch := []*kvpb.Request{pending.Request}
	if r := n.health.Refusal.Load(); r != nil {
		n.refuseAll(batch, r, pending.Reply)
		return
	}
	if work := n.begin(batch, pending); work != nil {
		work.Run()
		work.Done()
	}
}
