package admin

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Explanation explains the state of something, as text and in a form for programs.
type Explanation struct {
	Text string
	JSON []byte
}

// WhyPartition explains the placement of a partition's replicas, and what is being done about it.
func (c *Client) WhyPartition(ctx context.Context, partition uint64) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Partition: partition})
}

// WhyNode explains the placement on a node, and what is being done about it.
func (c *Client) WhyNode(ctx context.Context, node uint64) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Node: node})
}

// WhyKeyspace explains how far a keyspace is from its wanted placement.
func (c *Client) WhyKeyspace(ctx context.Context, keyspace string) (Explanation, error) {
	return c.why(ctx, &clusterpb.WhyRequest{Keyspace: keyspace})
}

func (c *Client) why(ctx context.Context, r *clusterpb.WhyRequest) (Explanation, error) {
	answer, err := ask(ctx, c, "explain", r.Keyspace, clusterpb.ClusterClient.Why, r)
	return Explanation{answer.GetText(), answer.GetJson()}, err
}

// Event is something that placement did.
type Event struct {
	Number uint64
	At     time.Time
	// Kind is the kind of an operator that ended (see OperatorInfo), or "node", "keyspace" or
	// "settings".
	Kind      string
	Partition uint64
	Keyspace  string
	// To, From and Leader have the same meanings as in OperatorInfo. In an event about a node, To is
	// the node.
	To, From, Leader uint64
	Operator         uint64
	// Reason says why the change was begun. Outcome says how it ended. Both are texts.
	Reason, Outcome string
	Took            time.Duration
	Bytes           uint64
	// ScoreBefore and ScoreAfter are the score that the operator was expected to improve, before
	// and after; Rejected are the alternatives that the planner did not choose.
	ScoreBefore, ScoreAfter, Rejected string
	// Child, SplitAt, SplitAtHidden and Right are as in OperatorInfo.
	Child         uint64
	SplitAt       []byte
	SplitAtHidden bool
	Right         uint64
}

// Events lists the events of placement, newest first, at most limit of them. If partition or node
// is not 0, only their events are listed. The cluster keeps the last ten thousand events.
func (c *Client) Events(ctx context.Context, partition, node uint64, limit int) ([]Event, error) {
	const op = "list events"
	if limit < 0 {
		return nil, invalid(op, "", "at most %d events", limit)
	}
	r, err := ask(ctx, c, op, "", clusterpb.ClusterClient.ListEvents,
		&clusterpb.ListEventsRequest{Partition: partition, Node: node,
			Limit: uint32(min(limit, 1<<31-1))})
	var all []Event
	for _, e := range r.GetEvents() {
		all = append(all, Event{Number: e.Number, At: time.UnixMilli(e.UnixMs), Kind: e.Kind,
			Partition: e.Partition, Keyspace: e.Keyspace, To: e.ToNode, From: e.FromNode,
			Leader: e.LeadNode, Operator: e.Operator, Reason: e.Reason, Outcome: e.Outcome,
			Took: time.Duration(e.TookMillis) * time.Millisecond, Bytes: e.Bytes,
			ScoreBefore: e.ScoreBefore, ScoreAfter: e.ScoreAfter, Rejected: e.Rejected,
			Child: e.Child, SplitAt: e.SplitAt, Right: e.Right, SplitAtHidden: e.SplitAtHidden})
	}
	return all, err
}
