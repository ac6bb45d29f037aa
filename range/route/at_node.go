package route

import (
	"context"
	"fmt"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// NodeIDs lists the nodes of the table that can be asked, in the order of their ids.
func (s *Sender) NodeIDs() []keys.NodeID {
	var all []keys.NodeID
	for id, info := range s.known.Table().Nodes() {
		if info.GetStatus() != clusterpb.NodeStatus_NODE_GONE {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// DoAtNode sends a request to a node that the node answers itself, whatever partitions it has, and
// returns the response, which has no error in it, or an *Error. It makes one attempt, and a second
// one with a new token if the node does not take the first.
func (s *Sender) DoAtNode(ctx context.Context, id keys.NodeID, command *kvpb.Request) (
	*kvpb.Response, error) {
	info := s.known.Table().Nodes()[id]
	if info == nil {
		return nil, &Error{Message: fmt.Sprintf("the cluster has no node %s", id)}
	}
	node := s.nodes.Get(id, info)
	for attempt := 1; ; attempt++ {
		token := s.identity.Shown()
		r := &kvpb.Request{Sequence: s.sequence.Add(1), Session: s.Clock.SessionOfRequest(),
			Command: command.Command}
		response, err := node.Lanes[0].Do(ctx, r)
		if err != nil {
			return nil, &Error{Cause: err, Node: id, Attempts: attempt,
				Message: fmt.Sprintf("node %s did not answer", id)}
		}
		e := response.Error
		if e == nil {
			return response, nil
		}
		if e.Code == kvpb.ErrorCode_UNAUTHENTICATED && attempt == 1 && s.identity.Named() &&
			s.identity.Renew(ctx, token) == nil {
			continue
		}
		return nil, &Error{Code: e.Code, Message: e.Message, Node: id, Attempts: attempt}
	}
}
