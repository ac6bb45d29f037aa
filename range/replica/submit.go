package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Take queues the writes among the requests. It is the only step in which the order of requests
// matters, and does not touch the disk. Each request is answered once, in any order, possibly
// before Take returns. If ok is set, the caller has to call Evaluate if writes were queued, and
// then Serve, with the same requests; otherwise all requests have been answered.
func (r *Replica) Take(requests []config.Pending) (queued, ok bool) {
	if !r.m.Enter() {
		for i := range requests {
			r.m.Reply(requests[i], command.Of(requests[i].Request), r.m.Refuse.Closed(requests[i].Request))
		}
		return false, false
	}
	writes := 0
	for i := range requests {
		if c := command.Of(requests[i].Request); c.Dispatch == command.InQueue {
			writes++
			queued = r.eval.Enqueue(requests[i], c) || queued
		}
	}
	r.m.Work.Took(len(requests), writes)
	return queued, true
}

// Evaluate evaluates the queued writes. Proposals for which only the client of the pass waits are
// left in the pass; pass may be nil. Evaluate does not wait for replication, and may wait for the
// disk.
func (r *Replica) Evaluate(pass eval.Pass) {
	if !r.m.Enter() {
		return // closing it refuses what is queued
	}
	defer r.m.Exit()
	r.eval.KickIn(pass, false)
}

// Serve serves the reads among the requests, from now on. Reads of single keys are answered at
// once. Serve may wait for the disk.
func (r *Replica) Serve(requests []config.Pending, now time.Time) {
	defer r.m.Exit()
	for i := range requests {
		switch c := command.Of(requests[i].Request); {
		case c.Dispatch == command.AtTimestamp:
			requests[i].Timing.EnterAt(timing.Evaluate, now)
			r.reads.Start(requests[i], c)
		case c == command.InspectTransactions:
			r.m.Reply(requests[i], c,
				r.reads.InspectTransactions(requests[i].Request, r.node.Clients.Address))
		case c.Dispatch == command.NotKnown || c.Dispatch == command.ByNode:
			r.m.Reply(requests[i], c, refusal.New(requests[i].Request, kvpb.ErrorCode_INVALID_ARGUMENT,
				"the request has no command that a partition knows; is the client newer than this server?"))
		}
	}
}

// since returns the seconds since a start, for metrics.
func since(start time.Time) float64 { return time.Since(start).Seconds() }
