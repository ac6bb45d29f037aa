package operators

import (
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leadRanks ranks nodes as of one view, and computes each rank once. It is not safe for concurrent
// use.
type leadRanks struct {
	reports *reports.Reports
	view    *store.View
	known   map[uint64]steps.Rank
	// err is the first error in reading the view.
	err error
}

func (s *Operators) leadRanks(v *store.View) *leadRanks {
	return &leadRanks{reports: s.reports, view: v, known: map[uint64]steps.Rank{}}
}

// of returns the rank of a node.
func (r *leadRanks) of(node uint64) steps.Rank {
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
		return steps.Silent
	}
	rank = steps.RankNode(n, alive != nil, r.reports.Stats(id))
	r.known[node] = rank
	return rank
}
