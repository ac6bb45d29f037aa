package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TransferLeader has the replica of a partition on a node lead it, now and from now on. It returns
// when that is recorded; Operators shows how it goes on.
func (c *Client) TransferLeader(ctx context.Context, partition, to uint64) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(fmt.Sprintf("transfer the lead of partition %d", partition), "",
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			_, err := cluster.TransferLeader(ctx, &clusterpb.TransferLeaderRequest{
				Partition: partition, ToNode: to})
			return err
		}))
}

// Explanation is why something is as it is, in words and for programs.
type Explanation struct {
	Text string
	JSON []byte
}

// WhyPartition explains where a partition's replicas are and what is done about it.
func (c *Client) WhyPartition(ctx context.Context, partition uint64) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Partition: partition})
}

// WhyNode explains what is on a node and what is done about it.
func (c *Client) WhyNode(ctx context.Context, node uint64) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Node: node})
}

// WhyKeyspace explains how far a keyspace is from what it wants.
func (c *Client) WhyKeyspace(ctx context.Context, keyspace string) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Keyspace: keyspace})
}

func (c *Client) why(ctx context.Context, r *clusterpb.WhyRequest) (Explanation, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var out Explanation
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		answer, err := cluster.Why(ctx, r)
		if err == nil {
			out = Explanation{answer.Text, answer.Json}
		}
		return err
	})
	return out, wrapAdmin("explain", r.Keyspace, err)
}

// Event is something that placement did.
type Event struct {
	Number uint64
	At     time.Time
	// Kind is that of an operator that ended (see OperatorInfo), or "node", "keyspace" or "settings".
	Kind      string
	Partition uint64
	Keyspace  string
	// To, From and Leader are as in OperatorInfo; an event of a node has the node in To.
	To, From, Leader uint64
	Operator         uint64
	// Reason is why it was begun, Outcome how it ended, in words.
	Reason, Outcome string
	Took            time.Duration
	Bytes           uint64
	// ScoreBefore and ScoreAfter are what the planner expected it to better, Rejected what it did not
	// choose.
	ScoreBefore, ScoreAfter, Rejected string
	// Child, SplitAt, SplitAtHidden and Right are as in OperatorInfo.
	Child         uint64
	SplitAt       []byte
	SplitAtHidden bool
	Right         uint64
}

// Events lists what placement did, the newest first, and at most limit of them: all, or those of
// one partition or node, if that is not 0. The cluster keeps the last ten thousand.
func (c *Client) Events(ctx context.Context, partition, node uint64, limit int) ([]Event, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if limit < 0 {
		return nil, invalid("list events", "", nil, "at most %d events", limit)
	}
	var all []Event
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListEvents(ctx, &clusterpb.ListEventsRequest{Partition: partition, Node: node,
			Limit: uint32(min(limit, 1<<31-1))})
		all = nil
		for _, e := range r.GetEvents() {
			all = append(all, Event{Number: e.Number, At: time.UnixMilli(e.UnixMs), Kind: e.Kind,
				Partition: e.Partition, Keyspace: e.Keyspace, To: e.ToNode, From: e.FromNode,
				Leader: e.LeadNode, Operator: e.Operator, Reason: e.Reason, Outcome: e.Outcome,
				Took: time.Duration(e.TookMillis) * time.Millisecond, Bytes: e.Bytes,
				ScoreBefore: e.ScoreBefore, ScoreAfter: e.ScoreAfter, Rejected: e.Rejected,
				Child: e.Child, SplitAt: e.SplitAt, Right: e.Right,
				SplitAtHidden: e.SplitAtHidden})
		}
		return err
	})
	return all, wrapAdmin("list events", "", err)
}

// PlacementSettings are what placement may do. In a change, what is zero stays as it is.
type PlacementSettings struct {
	// Paused: nothing new is begun. What is under way goes on.
	Paused bool
	// RepairDelay is how long a node is silent before its replicas are replaced.
	RepairDelay time.Duration
	// NodeSnapshots and ZoneSnapshots are how many snapshots a node, and all nodes of a zone
	// together, may receive at a time, and send.
	NodeSnapshots, ZoneSnapshots int
	// Operators is how many changes may be under way in all.
	Operators int
	// Pause is for how long a partition rests after a change, but for repairs.
	Pause time.Duration
	// MergePause is for how long two neighbours have to be calm, and not to have split, before they
	// are merged.
	MergePause time.Duration
}

// Placement says what placement may do.
func (c *Client) Placement(ctx context.Context) (PlacementSettings, error) {
	return c.placement(ctx, &clusterpb.PlacementSettings{})
}

// PausePlacement has nothing new begun, or takes that back. What is under way goes on.
func (c *Client) PausePlacement(ctx context.Context, paused bool) (PlacementSettings, error) {
	return c.placement(ctx, &clusterpb.PlacementSettings{Paused: &paused})
}

// LimitPlacement changes the delays and limits that are not zero. Paused is ignored.
func (c *Client) LimitPlacement(ctx context.Context, s PlacementSettings) (PlacementSettings,
	error) {
	change := &clusterpb.PlacementSettings{}
	for _, d := range []struct {
		name  string
		value time.Duration
		to    **uint64
	}{{"repair delay", s.RepairDelay, &change.RepairDelayMillis}, {"pause", s.Pause,
		&change.PauseMillis}, {"pause before merges", s.MergePause, &change.MergePauseMillis}} {
		if d.value < 0 {
			return s, invalid("set placement", "", nil, "a %s of %s", d.name, d.value)
		}
		if d.value != 0 {
			*d.to = new(uint64(d.value.Milliseconds()))
		}
	}
	for _, n := range []struct {
		name  string
		value int
		to    **uint32
	}{{"snapshots of a node", s.NodeSnapshots, &change.NodeSnapshots},
		{"snapshots of a zone", s.ZoneSnapshots, &change.ZoneSnapshots},
		{"operators", s.Operators, &change.Operators}} {
		if n.value < 0 || n.value > 1<<31-1 {
			return s, invalid("set placement", "", nil, "%d %s", n.value, n.name)
		}
		if n.value != 0 {
			*n.to = new(uint32(n.value))
		}
	}
	return c.placement(ctx, change)
}

func (c *Client) placement(ctx context.Context, change *clusterpb.PlacementSettings) (
	PlacementSettings, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var out PlacementSettings
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.SetPlacement(ctx, &clusterpb.SetPlacementRequest{Change: change})
		if s := r.GetSettings(); err == nil {
			out = PlacementSettings{Paused: s.GetPaused(),
				RepairDelay:   time.Duration(s.GetRepairDelayMillis()) * time.Millisecond,
				NodeSnapshots: int(s.GetNodeSnapshots()), ZoneSnapshots: int(s.GetZoneSnapshots()),
				Operators:  int(s.GetOperators()),
				Pause:      time.Duration(s.GetPauseMillis()) * time.Millisecond,
				MergePause: time.Duration(s.GetMergePauseMillis()) * time.Millisecond}
		}
		return err
	})
	return out, wrapAdmin("placement", "", err)
}
