package node

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/leadership"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The core has the leaders of partitions carry out the steps of its operators: it answers their
// heartbeats with orders. An order names the descriptor that it leads to, and so the membership for
// which it is made; an order that no longer fits is ignored. So it may come twice, late, or never,
// and to a replica that no longer leads. The core sees the outcome in the reports.
//
// A learner becomes a voter only when it has nearly all that its leader has, its clock agrees, and
// its disk has room. Replicas change only when a majority of the old and of the new voters answers.
// Until then the order waits, and reports for what.

const (
	// maxOrders bounds the orders that wait.
	maxOrders = 4096
	// orderWorkers bounds the orders that are carried out at a time, orderTimeout the time of each.
	orderWorkers = 8
	orderTimeout = 10 * time.Second
	// splitTimeout is orderTimeout for a split, before which the part that splits off is counted.
	splitTimeout = 2 * time.Minute
	// orderSoon is the time after which a waiting order is checked again; it doubles up to
	// orderAgain.
	orderSoon  = 10 * time.Millisecond
	orderAgain = 250 * time.Millisecond
	// orderFailed is the longest pause after an order that has failed. The pause begins with
	// orderAgain and doubles.
	orderFailed = 8 * time.Second
	// nearlyAll is the number of entries that a learner may lack to be promoted.
	nearlyAll = 100
)

// order is an order to the leader of a partition.
type order struct {
	*clusterpb.Order
	waits atomic.Pointer[string]
	// failures counts the failed attempts that left the descriptor as it was. told is the count
	// when the partition was last marked for a report; only the goroutine that carries the order
	// out uses it.
	failures atomic.Uint32
	told     uint32
	// looked counts the checks; due is the time of the next one. orders.mu guards both.
	looked int
	due    time.Time
}

// waitsFor returns, in words, what the order waits for.
func (o *order) waitsFor() string {
	if text := o.waits.Load(); text != nil {
		return *text
	}
	return ""
}

// fits reports whether an order is for the present partition: the descriptor that it leads to
// follows the present one.
func (o *order) fits(now *clusterpb.Partition) bool {
	generation, membership := o.GetTarget().GetGeneration(), o.GetTarget().GetMembership()
	switch {
	case o.GetConsume() != nil:
		return generation > now.GetGeneration() && membership == now.GetMembership() &&
			bytes.Equal(now.GetEnd(), o.GetConsume().GetStart())
	case o.GetChild() != nil:
		generation--
	case o.GetTransferTo() == 0:
		membership--
	}
	return generation == now.GetGeneration() && membership == now.GetMembership()
}

// orders are the orders of a node. One goroutine distributes them to a few others.
type orders struct {
	node *Node
	wake task.Signal
	mu   struct {
		sync.Mutex
		due map[*hosted.Replica]*order
		// begun are the orders that were found to fit; reports tell the core what these wait for.
		begun map[*hosted.Replica]*order
		// working are the partitions for which a goroutine carries out an order.
		working map[*hosted.Replica]struct{}
	}
}

func (s *orders) init(n *Node) {
	s.node, s.wake = n, task.NewSignal()
	s.mu.due, s.mu.begun = make(map[*hosted.Replica]*order), make(map[*hosted.Replica]*order)
	s.mu.working = make(map[*hosted.Replica]struct{})
}

// take takes orders. A later order for the same partition replaces the earlier one.
func (s *orders) take(orders []*clusterpb.Order) {
	if len(orders) == 0 {
		return
	}
	s.mu.Lock()
	news := false
	for _, o := range orders {
		h := s.node.replicas.Get(keys.PartitionID(o.GetTarget().GetId()))
		if h == nil {
			continue
		}
		old := s.mu.due[h]
		if old == nil && len(s.mu.due) >= maxOrders || old != nil && proto.Equal(old.Order, o) {
			continue
		}
		s.mu.due[h] = &order{Order: o}
		news = true
	}
	s.mu.Unlock()
	if news {
		s.wake.Send()
	}
}

// run carries out orders until the context ends.
func (s *orders) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	places := make(chan struct{}, orderWorkers)
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-again.C:
		}
		due, next := s.idle(time.Now())
		for h, o := range due {
			select {
			case places <- struct{}{}:
			case <-ctx.Done():
				return
			}
			s.works(h)
			working.Go(func() {
				defer func() { <-places }()
				s.carryOut(ctx, h, o)
			})
		}
		again.Stop()
		if next > 0 {
			again.Reset(next)
		}
	}
}

// idle returns the orders that are due and that no goroutine works on. next is the time until there
// may be others; 0 if there are none.
func (s *orders) idle(now time.Time) (idle map[*hosted.Replica]*order, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle = make(map[*hosted.Replica]*order)
	for h, o := range s.mu.due {
		if !now.Before(o.due) {
			o.due = now.Add(min(orderAgain, orderSoon<<min(o.looked, 10)))
			o.looked++
			if _, working := s.mu.working[h]; !working {
				idle[h] = o
			}
		}
		if wait := o.due.Sub(now); next == 0 || wait < next {
			next = wait
		}
	}
	return idle, next
}

// failed counts a failure, and delays the next attempt.
func (s *orders) failed(o *order, now time.Time) {
	n := o.failures.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	o.due = now.Add(min(orderFailed, orderAgain<<min(n-1, 10)))
}

// done ends an order, if no later one has replaced it.
func (s *orders) done(h *hosted.Replica, o *order) {
	s.mu.Lock()
	if s.mu.due[h] == o {
		delete(s.mu.due, h)
	}
	if s.mu.begun[h] == o || s.mu.due[h] == nil {
		delete(s.mu.begun, h)
	}
	s.mu.Unlock()
}

// works notes that a goroutine carries out an order of a partition from now on. An order that waits
// for a goroutine does not count: the goroutines may be taken for minutes.
func (s *orders) works(h *hosted.Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.working[h] = struct{}{}
}

// worked notes that an order was carried out, or has to wait.
func (s *orders) worked(h *hosted.Replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.working, h)
}

// busy reports whether an order of a partition is being carried out.
func (s *orders) busy(h *hosted.Replica) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, working := s.mu.working[h]
	return working
}

// describe adds to a report what the partition's order waits for.
func (s *orders) describe(h *hosted.Replica, r *clusterpb.PartitionReport) {
	s.mu.Lock()
	o := s.mu.begun[h]
	s.mu.Unlock()
	if o != nil {
		r.WaitsFor, r.Operator, r.Failures = o.waitsFor(), o.GetOperator(), o.failures.Load()
	}
}

// carryOut carries out an order, or finds that the order has to wait.
func (s *orders) carryOut(ctx context.Context, h *hosted.Replica, o *order) {
	defer s.worked(h)
	now := h.Replica.Descriptor()
	if !h.Leading.Load() || h.Removed.Load() || ctx.Err() != nil || !o.fits(now) {
		if h.Leading.Load() {
			s.node.settling.outdated(h)
		}
		s.done(h, o)
		return
	}
	s.mu.Lock()
	s.mu.begun[h] = o
	s.mu.Unlock()
	h.Group.Wake() // so that it becomes known which replicas answer
	reason := s.node.obstacle(ctx, h, o)
	if reason == "" {
		if o.GetTransferTo() != 0 {
			s.node.transfers.Transfer(h, keys.ReplicaID(o.GetTransferTo()))
			s.done(h, o)
			return
		}
		limit := orderTimeout
		if o.GetChild() != nil {
			limit = splitTimeout
		}
		changing, cancel := context.WithTimeout(ctx, limit)
		var err error
		switch {
		case o.GetConsume() != nil:
			err = s.node.consume(changing, h, o)
		case o.GetChild() != nil:
			err = h.Replica.Reshape().Split(changing, o.Target, o.Child)
		default:
			err = h.Replica.Reshape().ChangeDescriptor(changing, o.Target)
		}
		if err == nil {
			// Without the entry the change is not reported.
			err = h.Replica.Writes().Fence(changing)
		}
		cancel()
		if err == nil {
			s.node.metrics.ordersDone.Inc()
			s.done(h, o)
			s.node.reports.CarriedOut(h)
			return
		}
		reason = err.Error()
		if h.Replica.Descriptor() == now {
			s.failed(o, time.Now()) // otherwise the descriptor shows the failure
		}
		s.node.log.Warn("a step of an operator failed; it will be tried again", "partition", h.ID,
			"operator", o.Operator, "error", fmt.Sprintf("%q", reason))
	}
	failures := o.failures.Load()
	if before := o.waits.Swap(&reason); before == nil || *before != reason || o.told != failures {
		o.told = failures
		s.node.reports.ChangedLeader(h)
	}
	if h.Replica.Descriptor() != now || !h.Leading.Load() {
		s.done(h, o)
	}
}

// Wake is the core's hint that it has orders for this node: the next heartbeat comes soon.
func (n *Node) Wake() { n.reports.Urge() }

// obstacle returns, in words, what an order has to wait for; empty if nothing.
func (n *Node) obstacle(ctx context.Context, h *hosted.Replica, o *order) string {
	followers, ok := followersOf(ctx, h)
	if !ok {
		return "the leader does not answer"
	}
	if to := keys.ReplicaID(o.GetTransferTo()); to != 0 {
		if p, known := followers[to]; !known || !p.Active || n.host.Peers().Down(h.Group.HostOf(to)) ||
			p.Snapshot || p.Match < h.Group.Applied() {
			return fmt.Sprintf("replica %s, which is to lead, does not have everything yet", to)
		}
		if at := h.Group.HostOf(to); n.host.Peers().LeaderAverse(at) &&
			(!n.host.Peers().Recovering(at) || n.anyWilling(h, followers)) {
			return fmt.Sprintf("node %d, which is to lead, leaves that to others at present", at)
		}
		return ""
	}
	if o.GetConsume() != nil {
		return strings.Join(n.mergeObstacle(ctx, h, o), ", ")
	}
	from, to := h.Replica.Configuration(), group.ConfigurationOf(o.GetTarget())
	active := func(id keys.ReplicaID) bool {
		return id == h.Self || followers[id].Active && !n.host.Peers().Down(h.Group.HostOf(id))
	}
	if !from.Quorum(active) {
		return "a majority of its voters does not answer"
	}
	var waits []string
	last := h.Group.Applied()
	if o.GetChild() != nil {
		// Each replica makes the child by itself: one that is far behind would be sent a snapshot
		// of the left part only, and one of the child. A replica that is away is not waited for.
		for _, m := range from.Members {
			p := followers[m.Replica]
			if m.Replica != h.Self && active(m.Replica) && (p.Snapshot || p.Match+nearlyAll < last) {
				waits = append(waits, fmt.Sprintf("node %d does not have everything yet", m.Host))
			}
		}
	}
	for _, m := range to.Members {
		if m.Role != group.Incoming || from.Role(m.Replica) != group.Learner {
			continue
		}
		p := followers[m.Replica]
		switch {
		case !active(m.Replica):
			waits = append(waits, fmt.Sprintf("node %d does not answer", m.Host))
		case p.Snapshot:
			waits = append(waits, fmt.Sprintf("node %d receives a snapshot", m.Host))
		case p.Match == 0:
			waits = append(waits, fmt.Sprintf("node %d has nothing yet", m.Host))
		case p.Match+nearlyAll < last:
			waits = append(waits, fmt.Sprintf("node %d lacks %d entries", m.Host, last-p.Match))
		case !n.host.Clocks().Agrees(m.Host):
			waits = append(waits, fmt.Sprintf("the clock of node %d is not confirmed", m.Host))
		case n.host.Peers().WithoutRoom(m.Host):
			waits = append(waits, fmt.Sprintf("the disk of node %d is full", m.Host))
		}
	}
	if len(waits) == 0 && to.Joint() && !to.Quorum(active) {
		waits = append(waits, "a majority of the new voters does not answer")
	}
	return strings.Join(waits, ", ")
}

// anyWilling reports whether a partition that is led here has a follower that could take over the
// leadership now, on a node that is willing to lead.
func (n *Node) anyWilling(h *hosted.Replica, followers map[keys.ReplicaID]group.Progress) bool {
	members, applied := h.Replica.Configuration(), h.Group.Applied()
	for id, p := range followers {
		at := h.Group.HostOf(id)
		if members.Electable(id) && p.Active && !p.Snapshot && p.Match >= applied &&
			!n.host.Peers().Down(at) && !n.host.Peers().LeaderAverse(at) {
			return true
		}
	}
	return false
}

// followersOf asks a group's leader for its followers.
func followersOf(ctx context.Context, h *hosted.Replica) (map[keys.ReplicaID]group.Progress, bool) {
	answer := make(chan map[keys.ReplicaID]group.Progress, 1)
	h.Group.Followers(func(f map[keys.ReplicaID]group.Progress) { answer <- f })
	timer := time.NewTimer(4 * leadership.BusyDelay)
	defer timer.Stop()
	select {
	case f := <-answer:
		return f, f != nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}
