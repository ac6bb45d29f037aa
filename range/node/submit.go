package node

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Submit takes one message of a client; it is rpc.BatchServerConfig.Take, and the only entry for
// requests. The requests belong to the node from here on, the slice stays the caller's. Each
// request is answered once, from any goroutine, possibly before Submit returns. The writes reach
// their partitions in their order, and before Submit returns. What may wait for a disk is left to
// the Work that it returns, nil if there is none. Requests with timestamps that this node's clock
// cannot take yet are put aside (clocks.FutureReads).
func (n *Node) Submit(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) rpc.Work {
	now := time.Now()
	if r := n.health.Refusal.Load(); r != nil {
		n.refuseAll(batch, r, reply)
		return nil
	}
	if batch = n.futureReads.PutAside(client, batch, reply, now); len(batch) == 0 {
		return nil
	}
	return n.begin(batch, config.Pending{Client: client, Reply: reply, Arrived: now})
}

// refuseAll answers the requests to a node that does not serve.
func (n *Node) refuseAll(batch []*kvpb.Request, r *hosted.Refusal, reply func(*kvpb.Response)) {
	for _, q := range batch {
		n.refuse(q, r.Code, r.Message, reply)
	}
}

// begin makes a pass of requests. template holds what they have in common.
func (n *Node) begin(batch []*kvpb.Request, template config.Pending) rpc.Work {
	n.shared.Asked(batch, template.Arrived)
	p := passes.Get().(*pass)
	p.node, p.client = n, template.Client
	p.route(batch, template)
	if !p.take() {
		p.release()
		return nil
	}
	return p
}
