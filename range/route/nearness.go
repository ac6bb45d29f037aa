package route

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Which replica is the nearest.
//
// One in the sender's zone is nearer than one in its region, and that is nearer than all others.
// Where that is equal, the latency counts (package nodes). It is measured with small reads, and
// with a ping of each node that may be chosen, once a second as long as there are such reads.
// Replicas whose latencies are as good as equal share the reads evenly, as share does it.

const (
	// latencySlack is how much longer than the shortest latency is as good as equal, beside a tenth
	// of it (nodes.LatencyStep).
	latencySlack = 500 * time.Microsecond
)

// nearest chooses the replica that a read is to ask next; nil: there is none that was not tried, is
// trusted, and is likely to be able to answer. leftAlone says that one was left out because of what
// is known of it.
func (s *Sender) nearest(
	p *Partition, near *Near, tried []*nodes.Node,
) (chosen *nodes.Node, leftAlone bool) {
	var few [8]*nodes.Node
	all, now := few[:0], time.Now()
	for _, n := range p.Voters {
		n.Want()
		switch {
		case n.Suspected() || slices.Contains(tried, n):
		case p.Hints.Replicas.Leaves(n, near.need(), near.Wait,
			near.Freshness == FreshLinearizable, now):
			leftAlone = true
		default:
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil, leftAlone
	}
	closest := nodes.Elsewhere
	for _, n := range all {
		closest = min(closest, n.Distance())
	}
	all = slices.DeleteFunc(all, func(n *nodes.Node) bool { return n.Distance() > closest })
	var shortest time.Duration
	for _, n := range all {
		if l := n.Latency.Known(); l > 0 && (shortest == 0 || l < shortest) {
			shortest = l
		}
	}
	if shortest > 0 {
		longest := shortest + shortest/nodes.LatencyStep + latencySlack
		all = slices.DeleteFunc(all, func(n *nodes.Node) bool {
			return n.Latency.Known() > longest // one that is not known yet is about to be
		})
	}
	return s.share(p, all, near.Stay), leftAlone
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
	var ask []*nodes.Node
	var all []NodeLatency
	for id, info := range s.known.Table().Nodes() {
		n := s.nodes.Get(id, info)
		ask = append(ask, n)
		far := n.Distance()
		all = append(all, NodeLatency{Node: id, Info: info, SameZone: far == nodes.SameZone,
			SameRegion: far <= nodes.SameRegion})
	}
	slots := make(chan struct{}, nodes.MaxPings)
	var running sync.WaitGroup
	for i, n := range ask {
		running.Go(func() { // ends with ctx, or the timeouts of the pings
			slots <- struct{}{}
			defer func() { <-slots }()
			for range measurements {
				if _, all[i].Err = n.Measure(ctx); all[i].Err != nil {
					break
				}
			}
			all[i].Latency = n.Latency.Known()
		})
	}
	running.Wait()
	slices.SortFunc(all, func(a, b NodeLatency) int { return int(int64(a.Node) - int64(b.Node)) })
	return all
}

// How replicas that are equally near share the reads.
//
// Each partition has its replica for this sender: they go around by the partitions' ids, which are
// consecutive when a keyspace is made, from a random beginning, so the reads of one sender are
// spread over the nodes, and those of a partition by many senders over its replicas. They go around
// by the sum of an id's digits, and not by the id: partitions are placed by going around, too. A
// replica that is asked about the same partitions again finds them in its caches, and an answer is
// seldom older than the one before.
//
// A sender that reads mostly one partition would have one node do all of it. So a node that owes
// far more answers than the others do is passed over, and the one that owes the fewest is asked:
// that is consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, 2016).

const (
	// moreThanFair is how many more answers than its fair share a node may owe: a fourth, and
	// fewMore for what is chance.
	moreThanFair = 4
	fewMore      = 4
)

// share chooses one of the nodes, which it may sort. stay: the load does not count.
func (s *Sender) share(p *Partition, all []*nodes.Node, stay bool) *nodes.Node {
	slices.SortFunc(all, func(a, b *nodes.Node) int { return cmp.Compare(a.ID, b.ID) })
	n := all[(digits(uint64(p.ID), uint64(len(all)))+s.beginning)%uint64(len(all))]
	if stay || len(all) == 1 {
		return n
	}
	owed, least := int64(0), n
	for _, other := range all {
		owes := other.Owed.Load()
		owed += owes
		if owes < least.Owed.Load() {
			least = other
		}
	}
	if fair := owed / int64(len(all)); n.Owed.Load() > fair+fair/moreThanFair+fewMore {
		return least
	}
	return n
}

// digits is the sum of the digits of a number, to a base. Modulo the base it goes around evenly
// among consecutive numbers, and among those of any stride (Thue and Morse; Gelfond, 1968).
func digits(x, base uint64) (sum uint64) {
	for ; x > 0; x /= max(base, 2) {
		sum += x % max(base, 2)
	}
	return sum
}
