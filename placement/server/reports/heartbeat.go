package reports

import (
	"cmp"
	"strings"

	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Forget drops the reports of a node, because the node has just started.
func (s *Reports) Forget(id keys.NodeID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.mu.nodes[id]; n != nil {
		s.unleadLocked(id, n)
		s.breaksLocked(id, n, nil)
		delete(s.mu.nodes, id)
	}
}

func (s *Reports) unleadLocked(id keys.NodeID, n *node) {
	for p := range n.led {
		if s.mu.leaders[p] == id {
			delete(s.mu.leaders, p)
			s.mu.news[p] = struct{}{}
		}
	}
	n.led = map[keys.PartitionID]struct{}{}
}

// Heartbeat processes a heartbeat. It returns whether the node should send everything, and whether
// the heartbeat has descriptors that may be newer than the table's. room limits the number of
// partitions. now is a reading of the monotonic clock.
func (s *Reports) Heartbeat(
	term uint64, h *clusterpb.HeartbeatRequest, room int, now int64,
) (wantFull, news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case term < s.mu.term:
		return true, false
	case term > s.mu.term:
		s.resetLocked(term)
	}
	id := keys.NodeID(h.Node)
	n := s.mu.nodes[id]
	if n == nil {
		n = &node{led: map[keys.PartitionID]struct{}{}}
		s.mu.nodes[id] = n
	}
	if h.Stats != nil {
		trimStats(h.Stats)
		n.stats, n.ahead = h.Stats, consumer.Ahead(h.Stats.ClockUnixNanos, now)
		n.statsAt = now
		s.breaksLocked(id, n, h.Stats.Broken)
	}
	if h.Full {
		s.unleadLocked(id, n)
		n.complete = true
	}
	for _, r := range h.Reports {
		if len(r.GetWaitsFor()) > meta.MaxTextBytes {
			r.WaitsFor = strings.ToValidUTF8(r.WaitsFor[:meta.MaxTextBytes], "")
		}
		pieces := r.SplitOff[:min(len(r.SplitOff), maxPieces)]
		r.SplitOff = nil
		trimHints(r.GetSplit())
		s.reportLocked(id, n, r, room)
		if d := r.Described; d != nil && s.mu.leaders[keys.PartitionID(r.Partition)] == id &&
			d.Id == r.Partition && d.Membership == r.Membership && d.Generation == r.Generation &&
			s.mu.tabled[keys.PartitionID(d.Id)] != epochOf(d) {
			s.claimLocked(d, pieces)
			s.mu.news[keys.PartitionID(d.Id)] = struct{}{}
			news = true
		}
	}
	return !n.complete, news
}

// reportLocked stores a report if it has the highest epoch and, within the epoch, the highest term.
func (s *Reports) reportLocked(id keys.NodeID, n *node, r *clusterpb.PartitionReport, room int) {
	p := keys.PartitionID(r.GetPartition())
	old := s.mu.partitions[p]
	if old == nil && len(s.mu.partitions) >= room {
		return
	}
	if r.Lost {
		delete(n.led, p)
		if s.mu.leaders[p] == id && (old == nil || r.Term >= old.Term) {
			s.mu.news[p] = struct{}{}
			delete(s.mu.leaders, p)
		}
		return
	}
	if old != nil {
		switch c := cmp.Or(cmp.Compare(r.Generation, old.Generation),
			cmp.Compare(r.Membership, old.Membership), cmp.Compare(r.Term, old.Term)); {
		case c < 0:
			return
		case c == 0 && s.mu.leaders[p] != id && s.mu.leaders[p] != 0:
			return // each term has only one leader
		}
	}
	if before := s.mu.nodes[s.mu.leaders[p]]; before != nil {
		delete(before.led, p)
	}
	changed := old == nil || s.mu.leaders[p] != id || r.Generation != old.Generation ||
		r.Membership != old.Membership
	s.mu.news[p] = struct{}{}
	s.mu.partitions[p] = r
	s.mu.leaders[p] = id
	n.led[p] = struct{}{}
	if changed {
		s.wakeMergesLocked(p, id)
	}
}
