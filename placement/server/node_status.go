package server

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Progress returns what a node holds, what still has to move away, and what prevents a status. It
// uses the given nodes and keyspaces, because the scheduler may not have seen the latest change.
// Nodes and keyspaces come from one view. The caller has the turn, so that no keyspace gets more
// replicas meanwhile.
func (c *scheduler) Progress(id keys.NodeID, want clusterpb.NodeStatus, nodes []*clusterpb.Node,
	keyspaces []meta.Keyspace) (*clusterpb.SetNodeStatusResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.planned {
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

// comesTo describes an operator that may still bring a replica to a node. It returns an empty
// string if there is none.
func (c *scheduler) comesTo(id keys.NodeID) string {
	var first *serverpb.Operator
	for _, o := range c.operators.flying {
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

// errPlanning returns the error of a leader of the core that has not read the whole table yet.
func errPlanning() error {
	return hint.Unavailable("the leader of the core is new, and still reads the table")
}
