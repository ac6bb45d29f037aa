package reports

import (
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// reportDelay is the maximum age of a node's statement about its peers when its heartbeat arrives.
const reportDelay = 2 * time.Second

const (
	// maxPeerReports limits how many other nodes a node can report as silent or behind. maxNotReady
	// limits how many reasons it can give for not being ready.
	maxPeerReports = 1000
	maxNotReady    = 8
)

// trimStats limits the size of a node's report.
func trimStats(s *clusterpb.NodeStats) {
	s.Silent = s.Silent[:min(len(s.Silent), maxPeerReports)]
	s.Behind = s.Behind[:min(len(s.Behind), maxPeerReports)]
	s.NotReady = s.NotReady[:min(len(s.NotReady), maxNotReady)]
	for i, reason := range s.NotReady {
		if len(reason) > meta.MaxTextBytes {
			s.NotReady[i] = strings.ToValidUTF8(reason[:meta.MaxTextBytes], "")
		}
	}
}

// StartedNow records that a known node has registered, and so has just started. now is a reading of
// the monotonic clock.
func (s *Reports) StartedNow(term uint64, id keys.NodeID, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term > s.mu.term {
		s.resetLocked(term)
	}
	if term == s.mu.term {
		s.mu.started[id] = now
	}
}

// AddReports adds the nodes' reports to their records. For a node that has just started, it also
// adds which reports of other nodes are still awaited: earlier reports about the node's replicas
// may be outdated.
func (s *Reports) AddReports(nodes []*clusterpb.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range nodes {
		if n.Status == clusterpb.NodeStatus_NODE_GONE {
			continue
		}
		if known := s.mu.nodes[keys.NodeID(n.Id)]; known != nil {
			n.Stats = known.stats
		}
		started, restarted := s.mu.started[keys.NodeID(n.Id)]
		if n.Alive && n.Stats == nil {
			n.AwaitsReports = append(n.AwaitsReports, n.Id)
		}
		if !restarted {
			continue
		}
		for _, other := range nodes {
			known := s.mu.nodes[keys.NodeID(other.Id)]
			if other.Id != n.Id && other.Alive && other.Status != clusterpb.NodeStatus_NODE_GONE &&
				(known == nil || known.statsAt < started+int64(reportDelay)) {
				n.AwaitsReports = append(n.AwaitsReports, other.Id)
			}
		}
		if len(n.AwaitsReports) == 0 {
			delete(s.mu.started, keys.NodeID(n.Id))
		}
	}
}

// Totals returns sums over the reports of all live nodes: the number of nodes that do not hear
// another live node, and the number of replicas that have not caught up with their leaders.
func (s *Reports) Totals(alive map[uint64]bool) (silent, behind int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, n := range s.mu.nodes {
		if !alive[uint64(id)] {
			continue
		}
		for _, other := range n.stats.GetSilent() {
			if alive[other] {
				silent++
			}
		}
		for _, b := range n.stats.GetBehind() {
			behind += int(b.Replicas)
		}
	}
	return silent, behind
}

// Clocks returns the least amount by which the clocks of a majority of the live nodes are ahead of
// the monotonic clock. It returns false if no majority has reported during the term.
func (s *Reports) Clocks(term uint64, alive map[uint64]bool) (ahead int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.term != term {
		return 0, false
	}
	var told []int64
	for id := range alive {
		if n := s.mu.nodes[keys.NodeID(id)]; n != nil && n.ahead != nil {
			told = append(told, *n.ahead)
		}
	}
	return consumer.Majority(told, len(alive))
}

// maxPermille limits each fraction in a report about keys.
const maxPermille = 1000

// trimHints removes impossible values from a node's report about keys, and limits its size.
func trimHints(h *clusterpb.SplitHints) {
	if h == nil {
		return
	}
	sound := func(k *clusterpb.SplitKey) *clusterpb.SplitKey {
		if k == nil || keys.ValidateUserKey(k.Key) != nil || k.Left > maxPermille ||
			k.Right > maxPermille || k.Across > maxPermille || k.Left+k.Right+k.Across > maxPermille {
			return nil
		}
		return k
	}
	h.ByLoad, h.BySize = sound(h.ByLoad), sound(h.BySize)
	if keys.ValidateUserKey(h.HotKey) != nil {
		h.HotKey, h.HotThousandths = nil, 0
	}
	h.HotThousandths = min(h.HotThousandths, maxPermille)
	h.AscendingThousandths = min(h.AscendingThousandths, maxPermille)
}
