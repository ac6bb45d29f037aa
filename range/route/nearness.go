package route

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Which replica is the nearest.
//
// One in the sender's zone is nearer than one in its region, and that is nearer than all others.
// Where that is equal, the latency counts (latency.go). It is measured with small reads, and with a
// ping of each node that may be chosen, once a second as long as there are such reads. Replicas
// whose latencies are as good as equal share the reads evenly, in the way of load_shares.go.

const (
	// latencySlack is how much longer than the shortest latency is as good as equal, beside a tenth
	// of it (latencyStep).
	latencySlack = 500 * time.Microsecond
	// pingTicks of the watchdog lie between two pings.
	pingTicks = 5
	// maxPings is how many nodes are pinged at a time.
	maxPings = 64
)

// distance is how far away a node is by its locality.
type distance int32

const (
	sameZone distance = iota
	sameRegion
	elsewhere
)

// distanceTo compares the sender's locality with a node's. Zones of different regions are different
// ones, whatever their names; without a locality all nodes are equal.
func (s *Sender) distanceTo(l *clusterpb.Locality) distance {
	region, zone := s.cfg.Region, s.cfg.Zone
	switch near := region == "" || region == l.GetRegion(); {
	case near && zone != "" && zone == l.GetZone():
		return sameZone
	case region != "" && near:
		return sameRegion
	}
	return elsewhere
}

// nearest chooses the replica that a read is to ask next; nil: there is none that was not tried, is
// trusted, and is likely to be able to answer. leftAlone says that one was left out because of what
// is known of it.
func (s *Sender) nearest(p *Partition, near *Near, tried []*node) (chosen *node, leftAlone bool) {
	var few [8]*node
	all, now, tick := few[:0], time.Now(), s.ticks.Load()+1
	for _, n := range p.voters {
		n.wanted.Store(tick)
		switch {
		case n.suspected.Load() || slices.Contains(tried, n):
		case p.hint.replicas.leaves(n, near, now):
			leftAlone = true
		default:
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil, leftAlone
	}
	closest := elsewhere
	for _, n := range all {
		closest = min(closest, distance(n.distance.Load()))
	}
	all = slices.DeleteFunc(all, func(n *node) bool { return distance(n.distance.Load()) > closest })
	var shortest time.Duration
	for _, n := range all {
		if l := n.latency.known(); l > 0 && (shortest == 0 || l < shortest) {
			shortest = l
		}
	}
	if shortest > 0 {
		longest := shortest + shortest/latencyStep + latencySlack
		all = slices.DeleteFunc(all, func(n *node) bool {
			return n.latency.known() > longest // one that is not known yet is about to be
		})
	}
	return s.share(p, all, near.Stay), leftAlone
}

// pingWanted pings the nodes that reads have looked at since the last time.
func (s *Sender) pingWanted(tick uint32) {
	pings := 0
	for _, n := range *s.nodes.Load() {
		at := n.wanted.Load()
		if at == 0 || tick+1-at > pingTicks || n.suspected.Load() || pings == maxPings ||
			!n.pinging.CompareAndSwap(false, true) {
			continue
		}
		pings++
		if !s.life.Go(func() {
			defer n.pinging.Store(false)
			_, _ = n.measure(s.life.Context()) // what does not answer is noticed by the watchdog
		}) {
			n.pinging.Store(false)
		}
	}
}

// measure pings a node once, and takes in how long that took.
func (n *node) measure(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	began := time.Now()
	_, err := n.lanes[0].now(ctx)
	took := time.Since(began)
	if err != nil && !errors.Is(err, errNoTime) {
		return 0, err
	}
	n.latency.observe(took, time.Now())
	return took, nil
}

// NodeLatency is how far away a node is.
type NodeLatency struct {
	Node keys.NodeID
	// Info is not to be changed.
	Info *clusterpb.Node
	// SameZone and SameRegion say whether it is where the sender is.
	SameZone, SameRegion bool
	// Latency is the shortest one of the last seconds; 0 if it is not known. Err is why the node
	// did not answer.
	Latency time.Duration
	Err     error
}

// measurements is how often MeasureNodes pings each node.
const measurements = 3

// MeasureNodes pings all nodes of the table, and lists them by id.
func (s *Sender) MeasureNodes(ctx context.Context) []NodeLatency {
	s.mu.Lock()
	var nodes []*node
	var all []NodeLatency
	for id, info := range s.mu.contents.nodes {
		n := s.nodeLocked(id)
		nodes = append(nodes, n)
		far := distance(n.distance.Load())
		all = append(all, NodeLatency{Node: id, Info: info, SameZone: far == sameZone,
			SameRegion: far <= sameRegion})
	}
	s.mu.Unlock()
	slots := make(chan struct{}, maxPings)
	var running sync.WaitGroup
	for i, n := range nodes {
		running.Go(func() { // ends with ctx, or the timeouts of the pings
			slots <- struct{}{}
			defer func() { <-slots }()
			for range measurements {
				if _, all[i].Err = n.measure(ctx); all[i].Err != nil {
					break
				}
			}
			all[i].Latency = n.latency.known()
		})
	}
	running.Wait()
	slices.SortFunc(all, func(a, b NodeLatency) int { return int(int64(a.Node) - int64(b.Node)) })
	return all
}
