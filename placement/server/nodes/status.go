package nodes

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// SetStatus drains or decommissions a node, or cancels that, and returns the progress. A request
// for the status that the node already has changes nothing, so it can be used to read the progress.
// Only the leader answers.
func (s *Nodes) SetStatus(
	ctx context.Context, r *clusterpb.SetNodeStatusRequest,
) (*clusterpb.SetNodeStatusResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	id, n := keys.NodeID(r.Node), &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	switch {
	case revision == 0:
		return nil, status.Errorf(codes.NotFound,
			"there is no node %d; `tidemark nodes` shows those there are", r.Node)
	case r.Status != clusterpb.NodeStatus_NODE_ACTIVE &&
		r.Status != clusterpb.NodeStatus_NODE_DRAINING &&
		r.Status != clusterpb.NodeStatus_NODE_MOVING:
		return nil, status.Errorf(codes.InvalidArgument, "a node is made active, draining or moving, "+
			"not %s", r.Status)
	case n.Status == clusterpb.NodeStatus_NODE_GONE:
		if r.DryRun || r.Status == clusterpb.NodeStatus_NODE_MOVING {
			return &clusterpb.SetNodeStatusResponse{Before: n.Status, Status: n.Status}, nil
		}
		return nil, status.Errorf(codes.FailedPrecondition, "node %d was decommissioned, which is for "+
			"good: start a server with an empty directory, which joins as a new node", r.Node)
	}
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	var keyspaces []meta.Keyspace
	if r.Status == clusterpb.NodeStatus_NODE_MOVING && n.Status != r.Status {
		if keyspaces, err = meta.LoadKeyspaces(v); err != nil {
			return nil, s.meta.Status(err)
		}
	}
	out, err := s.config.Planner.Progress(id, r.Status, nodes, keyspaces)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	out.Before, out.Status = n.Status, n.Status
	if r.Status == n.Status {
		return out, nil
	}
	if r.DryRun {
		return out, nil
	}
	if r.Status == clusterpb.NodeStatus_NODE_MOVING && len(out.Obstacles) > 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "node %d cannot be decommissioned: %s",
			r.Node, strings.Join(out.Obstacles, "; "))
	}
	n.Status, out.Status = r.Status, r.Status
	meta.Answer(ctx, out)
	ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: r.Node,
		Reason:  "asked for",
		Outcome: "is " + meta.StatusText(r.Status) + " now"},
		[]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("node " + id.String())
	}
	s.config.Logger.Info("node changes its status", "node", id, "before", meta.StatusText(out.Before),
		"status", meta.StatusText(n.Status))
	return out, nil
}
