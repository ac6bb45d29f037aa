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

// The replica of a child beside the parent's leader asks for votes as soon as it is born, and again
// until it leads: the others are born when they hear that the split is committed.
//
// Clients hear of the child from this node, and ask here first which node leads it. They are
// answered when a leader is known, which is a few milliseconds later. If they heard that there is
// none, they would ask the other nodes in vain, and wait for longer than that before they asked
// again.

const (
	// youngPeriod is the time between two tries to lead, youngTries how many there are. After that it
	// is one of many without a leader.
	youngPeriod = 20 * time.Millisecond
	youngTries  = 100
	// patientTries is after how many of them requests are answered that no leader is known.
	patientTries = 10
	// mostAsked is how many requests wait on a node.
	mostAsked = 1024
)

// young are the replicas that are to lead and have not yet.
type young struct {
	node *Node
	wake task.Signal
	mu   struct {
		sync.Mutex
		all    map[*hosted.Replica]*youth
		asked  int
		closed bool
	}
}

// youth is what is known of one.
type youth struct {
	// tried is how often it has campaigned, next when it does again.
	tried int
	next  time.Time
	asked []config.Pending
}

func (y *young) init(n *Node) {
	y.node, y.wake = n, task.NewSignal()
	y.mu.all = make(map[*hosted.Replica]*youth)
}

// add has a replica campaign that was just born.
func (y *young) add(h *hosted.Replica) {
	y.mu.Lock()
	y.mu.all[h] = &youth{}
	y.mu.Unlock()
	y.wake.Send()
}

// ask holds a request until a leader is known; it returns false if it is not to be held.
//
// INVARIANT: what is held names no term. So no replica executes it if it is a write: its sender
// only wants to know which node leads. An attempt that could run later than its sender thinks would
// be an error (see future_reads.go).
func (y *young) ask(h *hosted.Replica, pending config.Pending) bool {
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

// run has them campaign, and answers what was held.
func (y *young) run(ctx context.Context) {
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

// campaign has those campaign whose time it is. It returns how long it is until the next, 0 if
// there is none, and the requests that need not wait any more.
func (y *young) campaign() (again time.Duration, ready []config.Pending) {
	n, now := y.node, time.Now()
	y.mu.Lock()
	defer y.mu.Unlock()
	for h, of := range y.mu.all {
		leader, _ := h.Group.Leader()
		switch {
		case leader != 0 || h.Removed.Load() || h.Group.Failed() != nil || n.host.Leaving():
			ready = append(ready, y.forgetLocked(h)...)
			continue
		case of.tried == youngTries || !n.health.Fit():
			ready = append(ready, y.forgetLocked(h)...)
			n.elections.Add(h)
			continue
		}
		if !now.Before(of.next) {
			of.tried, of.next = of.tried+1, now.Add(youngPeriod)
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

// forgetLocked takes a replica out, and returns what was held for it.
func (y *young) forgetLocked(h *hosted.Replica) []config.Pending {
	of := y.mu.all[h]
	delete(y.mu.all, h)
	h.Split.Campaigning.Store(false)
	return y.answeredLocked(of)
}

func (y *young) answeredLocked(of *youth) []config.Pending {
	asked := of.asked
	of.asked = nil
	y.mu.asked -= len(asked)
	return asked
}

// forget takes a replica out that is removed.
func (y *young) forget(h *hosted.Replica) {
	if h.Split.Campaigning.Load() {
		y.wake.Send() // it says that it is removed
	}
}

// close refuses what is held, and holds nothing more.
func (y *young) close() {
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

// Resume goes on with a request that was held; it implements clocks.Server.
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
