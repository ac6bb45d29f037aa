package server

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// reportDelay is how old, at most, what a node says of its peers is when its heartbeat comes.
const reportDelay = 2 * time.Second

const (
	// maxPeerReports bounds how many other nodes a node can name as silent or behind, and
	// maxNotReady how many reasons it can give for not being ready.
	maxPeerReports = 1000
	maxNotReady    = 8
)

// trimStats bounds what is kept of a node's figures.
func trimStats(s *clusterpb.NodeStats) {
	s.Silent = s.Silent[:min(len(s.Silent), maxPeerReports)]
	s.Behind = s.Behind[:min(len(s.Behind), maxPeerReports)]
	s.NotReady = s.NotReady[:min(len(s.NotReady), maxNotReady)]
	for i, reason := range s.NotReady {
		if len(reason) > maxTextBytes {
			s.NotReady[i] = strings.ToValidUTF8(reason[:maxTextBytes], "")
		}
	}
}

// startedNow notes that a node that was there before has registered: it has just started. now is the monotonic clock.
func (s *soft) startedNow(term uint64, id keys.NodeID, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if term > s.mu.term {
		s.resetLocked(term)
	}
	if term == s.mu.term {
		s.mu.started[id] = now
	}
}

// addReports adds to nodes what they have reported, and for which reports of others it is waited
// until it is known how a node does that has just started: what the others said of its replicas
// before may be over.
func (s *soft) addReports(nodes []*clusterpb.Node) {
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

// totals are what all nodes that are alive report together: by how many nodes another one that is
// alive is not heard, and how many replicas have not caught up with their leaders.
func (s *soft) totals(alive map[uint64]bool) (silent, behind int) {
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

// measureHealth adds what nodes report of each other. It is 0 on a member that does not lead the
// core: what that has of nodes is old.
func (m *metrics) measureHealth(s *Server) {
	gauge := func(name, help string, value func(silent, behind int) int) {
		m.collectors = append(m.collectors, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_placement_" + name, Help: help}, func() float64 {
			if l, _ := s.store.Leadership(); !l.Serving {
				return 0
			}
			alive, err := meta.LoadAlive(s.store.Stale())
			if err != nil {
				return 0
			}
			return float64(value(s.soft.totals(alive)))
		}))
	}
	gauge("links_silent", "How often a node that is alive hears nothing of another one that is alive "+
		"and shares partitions with it: two if neither of two nodes hears the other.",
		func(silent, _ int) int { return silent })
	gauge("replicas_behind", "Replicas that have not caught up with the leaders of their partitions, "+
		"those on nodes that are down included.", func(_, behind int) int { return behind })
}
