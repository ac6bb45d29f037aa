package server

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// statusText is a status for people.
func statusText(s clusterpb.NodeStatus) string {
	switch s {
	case clusterpb.NodeStatus_NODE_ACTIVE:
		return "active"
	case clusterpb.NodeStatus_NODE_DRAINING:
		return "draining"
	case clusterpb.NodeStatus_NODE_MOVING:
		return "being decommissioned"
	case clusterpb.NodeStatus_NODE_GONE:
		return "gone"
	}
	return s.String()
}

// SetNodeStatus has a node drained or decommissioned, or takes that back, and says how far that is.
// Asking for the status that the node has changes nothing, so it is also the way to look. Only the
// leader does it.
func (s *Server) SetNodeStatus(
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
	out, err := s.scheduler.progressOf(id, r.Status, nodes, keyspaces)
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
	n.Status = r.Status
	ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: r.Node,
		Reason:  "asked for",
		Outcome: "is " + statusText(r.Status) + " now"},
		[]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict("node " + id.String())
	}
	s.config.Logger.Info("node changes its status", "node", id, "before", statusText(out.Before),
		"status", statusText(n.Status))
	out.Status = n.Status
	return out, nil
}

// progressOf says what a node holds, what of that is still to go, and what is in the way of a
// status, given the nodes and keyspaces as they are: the scheduler may not have heard of the last
// change. Both are of one view, and the caller has the turn: a keyspace is not given more replicas
// meanwhile.
func (c *scheduler) progressOf(id keys.NodeID, want clusterpb.NodeStatus, nodes []*clusterpb.Node,
	keyspaces []meta.Keyspace) (*clusterpb.SetNodeStatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.planned {
		return nil, errPlanning()
	}
	if n := c.nodes[id]; n != nil && n.Alive && !c.server.reports.Complete(id) {
		return nil, hint.Unavailable("node %s has not said yet what it leads", id)
	}
	for _, n := range nodes {
		id := keys.NodeID(n.Id)
		if known := c.nodes[id]; known != nil && known.Status == n.Status && known.Alive == n.Alive {
			continue
		}
		c.nodes[id] = n
		if err := c.state.SetNode(facts.WithStats(facts.Node(n), c.stats[id])); err != nil {
			return nil, err
		}
	}
	for _, k := range keyspaces {
		if k.State != clusterpb.KeyspaceState_ACTIVE {
			continue
		}
		ks, err := facts.Keyspace(k.Keyspace)
		if err == nil {
			err = c.state.SetKeyspace(ks)
		}
		if err != nil {
			return nil, err
		}
	}
	why, err := c.explainer.Node(id)
	if err != nil {
		return nil, err
	}
	out := &clusterpb.SetNodeStatusResponse{Replicas: uint64(c.state.ReplicasOn(id)),
		Leaders: uint64(c.state.LeadersOn(id)), Bytes: uint64(max(0, why.Bytes)),
		ReplicasLeft: uint64(why.ReplicasLeft), LeadersLeft: uint64(why.LeadersLeft),
		InTheWay: why.InTheWay}
	if out.ReplicasLeft > 0 {
		out.BytesLeft = uint64(c.state.BytesOn(id))
	}
	if out.InTheWay == "" && out.Replicas == 0 && want == clusterpb.NodeStatus_NODE_MOVING {
		out.InTheWay = c.comesTo(id)
	}
	switch want {
	case clusterpb.NodeStatus_NODE_MOVING:
		for _, o := range c.explainer.CanRemove(id) {
			out.Obstacles = append(out.Obstacles, o.Text)
		}
	case clusterpb.NodeStatus_NODE_DRAINING:
		for _, o := range c.explainer.CanDrain(id) {
			out.Obstacles = append(out.Obstacles, o.Text)
		}
		out.LeadersLeft = out.Leaders - uint64(c.explainer.LeadsAlone(id))
	}
	return out, nil
}

// comesTo says which operator may still bring a replica to a node; empty: none.
func (c *scheduler) comesTo(id keys.NodeID) string {
	var first *serverpb.Operator
	for _, o := range c.flying {
		if keys.NodeID(o.AddNode) == id && (first == nil || o.Partition < first.Partition) {
			first = o
		}
	}
	if first == nil {
		return ""
	}
	leader, waits := c.server.reports.Progress(keys.PartitionID(first.Partition))
	text := fmt.Sprintf("operator %d would bring a replica of partition %d, and is not "+
		"taken back yet",
		first.Id, first.Partition)
	switch {
	case leader == 0:
		text += ": no leader of the partition has reported"
	case waits != "":
		text += ": " + waits
	}
	return text
}

// errPlanning says that the leader of the core has not read the table yet.
func errPlanning() error {
	return hint.Unavailable("the leader of the core is new, and still reads the table")
}
