package server

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leadRank says how well a node can take over the lead of a partition.
type leadRank int

const (
	// silent: the node does not answer.
	silent leadRank = iota
	// leadsNothing: its disk is full or its clock is wrong. It refuses a lead, or serves nothing.
	leadsNothing
	// leadsBadly: the node is on its way out, or its disk is slow. It leads rather than none.
	leadsBadly
	// leadsWell: nothing is known against it.
	leadsWell
)

// rankNode judges a node by its record, nil if there is none, and by what it has reported of
// itself, nil if nothing is known.
func rankNode(n *clusterpb.Node, alive bool, stats *clusterpb.NodeStats) leadRank {
	switch {
	case !alive:
		return silent
	case stats.GetDiskFull() || stats.GetClockUnhealthy():
		return leadsNothing
	case stats.GetDiskSlow() || n.GetStatus() != clusterpb.NodeStatus_NODE_ACTIVE:
		return leadsBadly
	}
	return leadsWell
}

// leadRanks judges nodes as of one view, each once. It is not safe for concurrent use.
type leadRanks struct {
	soft  *soft
	view  *store.View
	known map[uint64]leadRank
	// err is the first error with which the view could not be read.
	err error
}

func (s *Server) leadRanks(v *store.View) *leadRanks {
	return &leadRanks{soft: &s.soft, view: v, known: map[uint64]leadRank{}}
}

// of is the rank of a node.
func (r *leadRanks) of(node uint64) leadRank {
	rank, known := r.known[node]
	if known {
		return rank
	}
	id := keys.NodeID(node)
	alive, err := r.view.Get(meta.AliveKey(id))
	n := &clusterpb.Node{}
	if err == nil {
		_, err = meta.Load(r.view, meta.NodeKey(id), n)
	}
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return silent
	}
	rank = rankNode(n, alive != nil, r.soft.stats(id))
	r.known[node] = rank
	return rank
}
