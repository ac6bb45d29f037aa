package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// whyEvents is the number of events in an explanation.
const whyEvents = 16

// explanation is the content of the answer to Why, as JSON.
type explanation struct {
	Partition any `json:"partition,omitempty"`
	Node      any `json:"node,omitempty"`
	Keyspace  any `json:"keyspace,omitempty"`
	// UnderWay has the operator of the partition, or the operators that name the node.
	UnderWay []*clusterpb.OperatorInfo `json:"under_way,omitempty"`
	// Events are the last events that name the partition, node or keyspace, the newest first.
	Events []*clusterpb.Event `json:"events,omitempty"`
}

// Why explains the planner's view of a partition, a node or a keyspace. Only the leader answers.
func (s *Server) Why(ctx context.Context, r *clusterpb.WhyRequest) (*clusterpb.WhyResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	out, text, err := s.explain(v, r)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	all, err := s.operators.List(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, o := range all.Operators {
		if r.Partition != 0 && (o.Partition == r.Partition || o.Child == r.Partition ||
			o.Right == r.Partition) || r.Node != 0 && (o.ToNode == r.Node ||
			o.FromNode == r.Node || o.LeadNode == r.Node) {
			out.UnderWay = append(out.UnderWay, o)
			text += "  under way: " + operatorText(o) + "\n"
		}
	}
	if r.Keyspace == "" {
		events, err := s.ListEvents(ctx, &clusterpb.ListEventsRequest{Partition: r.Partition,
			Node: r.Node, Limit: whyEvents})
		if err != nil {
			return nil, err
		}
		out.Events = events.Events
		for _, e := range events.Events {
			text += "  " + eventText(e) + "\n"
		}
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if sees, err := s.seesExplained(ctx, v, r); err != nil {
		return nil, s.meta.Status(err)
	} else if !sees {
		text = veil.WithoutKeys(text)
		if encoded, err = veil.WithoutKeysJSON(encoded); err != nil {
			return nil, s.meta.Status(err)
		}
	}
	return &clusterpb.WhyResponse{Text: text, Json: encoded}, nil
}

// seesExplained reports whether the caller may see all keys of the keyspace that the explanation is
// about. An explanation of a node has keys of any keyspace.
func (s *Server) seesExplained(
	ctx context.Context, v *store.View, r *clusterpb.WhyRequest) (bool, error) {
	sees := veil.SightOf(ctx)
	switch {
	case sees.All(0): // no keyspace has the id 0, so this caller sees every key
		return true, nil
	case r.Partition != 0:
		p, err := s.operators.Find(v, keys.PartitionID(r.Partition))
		return err == nil && sees.All(keys.KeyspaceID(p.GetKeyspace())), err
	case r.Keyspace != "":
		ks, err := s.meta.KeyspaceByName(v, r.Keyspace)
		return err == nil && sees.All(ks.ID()), err
	}
	return false, nil
}

// explain asks the planner.
func (s *Server) explain(v *store.View, r *clusterpb.WhyRequest) (*explanation, string, error) {
	var keyspace keys.KeyspaceID
	if r.Keyspace != "" {
		ks, err := s.meta.KeyspaceByName(v, r.Keyspace)
		if err != nil {
			return nil, "", err
		}
		if keyspace = ks.ID(); ks.State != clusterpb.KeyspaceState_ACTIVE {
			return nil, "", status.Errorf(codes.FailedPrecondition, "keyspace %s is being created or "+
				"dropped; `tidemark keyspace list` shows what it waits for", ks.Name)
		}
	}
	c := &s.scheduler
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.last.planned {
		return nil, "", errPlanning()
	}
	notFound := func(err error) error { return status.Error(codes.NotFound, err.Error()) }
	switch {
	case r.Partition != 0:
		why, err := c.explainer.Partition(keys.PartitionID(r.Partition))
		if err != nil {
			return nil, "", notFound(err)
		}
		return &explanation{Partition: why}, why.String(), nil
	case r.Node != 0:
		why, err := c.explainer.Node(keys.NodeID(r.Node))
		if err != nil {
			return nil, "", notFound(err)
		}
		return &explanation{Node: why}, why.String(), nil
	case r.Keyspace != "":
		why, err := c.explainer.Keyspace(keyspace)
		if err != nil {
			return nil, "", notFound(err)
		}
		return &explanation{Keyspace: why}, why.String(), nil
	}
	return nil, "", status.Error(codes.InvalidArgument,
		"say of which partition, node or keyspace something is to be explained")
}

// operatorText describes an operator that is under way, in one line.
func operatorText(o *clusterpb.OperatorInfo) string {
	text := fmt.Sprintf("%s%s of partition %d%s, for %s, because: %s; %s", o.Kind,
		nodesText(o.FromNode, o.ToNode, o.LeadNode), o.Partition,
		childText(o.Child, o.SplitAt)+rightText(o.Right),
		time.Since(time.UnixMilli(o.CreatedUnixMs)).Round(time.Second), o.Reason, o.Step)
	if o.WaitsFor != "" {
		text += ", waits: " + o.WaitsFor
	}
	return text
}

// eventText describes an event, in one line.
func eventText(e *clusterpb.Event) string {
	at := time.UnixMilli(e.UnixMs).UTC().Format(time.RFC3339)
	if e.Operator == 0 {
		if e.Keyspace != "" {
			return fmt.Sprintf("%s: keyspace %s: %s", at, e.Keyspace, e.Outcome)
		}
		return fmt.Sprintf("%s: node %d %s", at, e.ToNode, e.Outcome)
	}
	text := fmt.Sprintf("%s: %s%s of partition %d%s in %s: %s, because: %s", at, e.Kind,
		nodesText(e.FromNode, e.ToNode, e.LeadNode), e.Partition,
		childText(e.Child, e.SplitAt)+rightText(e.Right),
		time.Duration(e.TookMillis)*time.Millisecond, e.Outcome, e.Reason)
	if e.ScoreBefore != "" {
		text += fmt.Sprintf(" (score %s -> %s)", e.ScoreBefore, e.ScoreAfter)
	}
	return text
}

// childText describes the partition that splits off. It is empty if there is none.
func childText(child uint64, at []byte) string {
	if child == 0 {
		return ""
	}
	return fmt.Sprintf(" at %s, with partition %d to the right", keys.Pretty(at), child)
}

// rightText describes the partition that is merged into another. It is empty if there is none.
func rightText(right uint64) string {
	if right == 0 {
		return ""
	}
	return fmt.Sprintf(" with partition %d, its right neighbour", right)
}

// nodesText describes the source and the destination of a change.
func nodesText(from, to, lead uint64) string {
	var b strings.Builder
	if from != 0 {
		fmt.Fprintf(&b, " from node %d", from)
	}
	if to != 0 {
		fmt.Fprintf(&b, " to node %d", to)
	}
	if lead != 0 {
		fmt.Fprintf(&b, " leader to node %d", lead)
	}
	return b.String()
}
