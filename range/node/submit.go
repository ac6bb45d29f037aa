package node

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/node/admit"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/slowlog"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Submit takes one message of a client; it is rpc.BatchServerConfig.Take, and the only entry for
// requests. The requests belong to the node from here on, the slice stays the caller's. Each
// request is answered once, from any goroutine, possibly before Submit returns. The writes reach
// their partitions in their order, and before Submit returns. What may wait for a disk is left to
// the Work that it returns, nil if there is none. Requests with timestamps that this node's clock
// cannot take yet are put aside (clocks.FutureReads). Requests whose keyspaces have reached a quota
// are refused before that (quotas.Filter).
func (n *Node) Submit(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) rpc.Work {
	now := time.Now()
	if r := n.health.Refusal.Load(); r != nil {
		n.refuseAll(batch, r, reply)
		return nil
	}
	if batch, reply = n.quotas.Filter(batch, reply, now); len(batch) == 0 {
		return nil
	}
	if batch = n.futureReads.PutAside(client, batch, reply, now); len(batch) == 0 {
		return nil
	}
	n.shared.Asked(batch, now)
	if batch, reply = n.gate.Enter(client, batch, reply, now); len(batch) == 0 {
		return nil
	}
	return newPass(n, client, arrivals{batch: batch,
		template: config.Pending{Client: client, Reply: reply, Arrived: now}})
}

// refuseAll answers the requests to a node that does not serve.
func (n *Node) refuseAll(batch []*kvpb.Request, r *hosted.Refusal, reply func(*kvpb.Response)) {
	for _, q := range batch {
		n.refuse(q, r.Code, r.Message, reply)
	}
}

// begin makes a pass of requests that were put aside. template holds what they have in common.
func (n *Node) begin(batch []*kvpb.Request, template config.Pending) rpc.Work {
	n.shared.Asked(batch, template.Arrived)
	return newPass(n, template.Client, arrivals{batch: batch, template: template})
}

// newPass makes a pass of requests of one client.
func newPass(n *Node, client uint64, all arrivals) rpc.Work {
	p := passes.Get().(*pass)
	p.node, p.client = n, client
	p.route(all)
	if !p.take() {
		p.release()
		return nil
	}
	return p
}

// entrance is the node as admit.Gate sees it.
type entrance struct{ *Node }

// Begin implements admit.Server.
func (e entrance) Begin(client uint64, requests []config.Pending) rpc.Work {
	if r := e.health.Refusal.Load(); r != nil {
		for i := range requests {
			e.refuse(requests[i].Request, r.Code, r.Message, requests[i].Reply)
		}
		return nil
	}
	return newPass(e.Node, client, arrivals{waited: requests})
}

// watches are told of the requests that are answered.
type watches struct {
	gate *admit.Gate
	slow *slowlog.Log
}

// Answered implements config.Watch.
func (w watches) Answered(p *config.Pending, c *command.Command, response *kvpb.Response) {
	w.gate.Answered(p)
	w.slow.Answered(p, c, response)
}
