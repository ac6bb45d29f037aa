package server

import (
	"context"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// repeated returns the context of a call that a server forwards, with an id.
func repeated(ctx context.Context, id uint64) context.Context {
	return metadata.NewIncomingContext(ctx,
		metadata.Pairs("tidemark-call", strconv.FormatUint(id, 16)))
}

// A merge, a cancellation and a change of a node's status that are asked for again, because their
// answers were lost, take effect once, whatever has happened meanwhile.
func TestRepeatedCallsTakeEffectOnce(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "f", "m", "s"))
		request := &clusterpb.MergePartitionRequest{Partition: 100}
		first, err := f.client.MergePartition(repeated(t.Context(), 7), request)
		if err != nil {
			t.Fatal(err)
		}
		f.awaitWhole(time.Minute, "it has merged", f.settled)
		partitions := len(partitionsIn(f.t, f.client, "x"))
		again, err := f.client.MergePartition(repeated(t.Context(), 7), request)
		if err != nil || !proto.Equal(again, first) {
			t.Errorf("a merge that is asked for again: %v, %v; at first %v", again, err, first)
		}
		if !f.idle() || len(partitionsIn(f.t, f.client, "x")) != partitions {
			t.Error("a merge that is asked for again begins another one")
		}

		// The cancellation of a merge is repeated when another merge is under way.
		f.merge(100)
		cancel := &clusterpb.CancelOperatorRequest{Partition: 100}
		if _, err := f.client.CancelOperator(repeated(t.Context(), 8), cancel); err != nil {
			t.Fatal(err)
		}
		f.awaitWhole(time.Minute, "nothing is under way", f.settled)
		if _, err := f.client.CancelOperator(repeated(t.Context(), 8), cancel); err != nil {
			t.Errorf("a cancellation that is asked for again: %v", err)
		}
		// Another request with this id, and the same one with another id, are calls of their own.
		other := &clusterpb.CancelOperatorRequest{Partition: 101}
		if _, err := f.client.CancelOperator(repeated(t.Context(), 8), other); err == nil {
			t.Error("another cancellation has the answer of the first")
		}
		if _, err := f.client.CancelOperator(repeated(t.Context(), 9), cancel); err == nil {
			t.Error("a cancellation of nothing succeeds")
		}

		// A node is taken out, and put back before the first call is repeated.
		leave := &clusterpb.SetNodeStatusRequest{Node: 1,
			Status: clusterpb.NodeStatus_NODE_DRAINING}
		if _, err := f.client.SetNodeStatus(repeated(t.Context(), 10), leave); err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 1,
			Status: clusterpb.NodeStatus_NODE_ACTIVE}); err != nil {
			t.Fatal(err)
		}
		r, err := f.client.SetNodeStatus(repeated(t.Context(), 10), leave)
		if err != nil || r.Before != clusterpb.NodeStatus_NODE_ACTIVE ||
			r.Status != clusterpb.NodeStatus_NODE_DRAINING {
			t.Errorf("a status that is asked for again: %v, %v", r, err)
		}
		nodes, err := f.client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
		if err != nil || nodes.Nodes[0].Status != clusterpb.NodeStatus_NODE_ACTIVE {
			t.Errorf("the node: %v, %v", nodes.GetNodes(), err)
		}
	})
}

// An attempt that began before the first one was committed, and is refused because of what the
// first one did, has the answer of the first.
func TestOverlappingAttempts(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "f", "m"))
		m, request := c.leader.server.meta, &clusterpb.MergePartitionRequest{Partition: 101}
		second, answered, err := m.Once(t.Context(), 22, request, &clusterpb.MergePartitionResponse{})
		if answered || err != nil {
			t.Fatal(answered, err)
		}
		first, err := f.client.MergePartition(repeated(t.Context(), 22), request)
		if err != nil {
			t.Fatal(err)
		}
		f.awaitWhole(time.Minute, "it has merged", f.settled)
		answer := &clusterpb.MergePartitionResponse{}
		if again, err := m.Refuse(second, request, answer); !again || err != nil ||
			!proto.Equal(answer, first) {
			t.Errorf("%v, %v, %v; at first %v", again, answer, err, first)
		}

		// A call that was not made before is refused.
		other, _, err := m.Once(t.Context(), 24, request, answer)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := m.Refuse(other, request, answer); again || err != nil {
			t.Errorf("a call that was not made: %v, %v", again, err)
		}
	})
}

// The answer of a call is stored by one commit only. A later commit with the same context does not
// store the answer.
func TestAnswerOfOneCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, _ *coreclient.Client) {
		m, request := c.leader.server.meta, &clusterpb.CancelOperatorRequest{Partition: 7}
		answer := &clusterpb.CancelOperatorResponse{}
		ctx, _, err := m.Once(t.Context(), 26, request, answer)
		if err != nil {
			t.Fatal(err)
		}
		meta.Answer(ctx, answer)
		absent := []*storepb.Compare{store.Absent([]byte(meta.IDsKey + "x"))}
		if ok, err := m.Commit(t.Context(), absent, store.Put([]byte(meta.IDsKey+"x"), nil)); !ok ||
			err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := m.Commit(ctx, absent, store.Put([]byte(meta.IDsKey+"x"), nil)); ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := m.Commit(ctx, nil, store.Delete([]byte(meta.IDsKey+"x"))); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, answered, err := m.Once(t.Context(), 26, request, answer); answered || err != nil {
			t.Errorf("a call whose commit has failed counts as made: %v", err)
		}
	})
}
