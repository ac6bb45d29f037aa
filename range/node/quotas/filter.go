package quotas

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// hurryPause is the time between two heartbeats that are hurried because of refused requests.
const hurryPause = time.Second

// Filter takes a message of a client. It refuses the requests whose keyspaces have reached a quota
// a second, and returns the others with the function that answers them. batch stays the caller's.
func (q *Quotas) Filter(batch []*kvpb.Request, reply func(*kvpb.Response), now time.Time) (
	rest []*kvpb.Request, counted func(*kvpb.Response)) {
	rated := q.rated.Load()
	if rated == nil {
		return batch, reply
	}
	// charged are the requests that have paid, by their ids.
	var charged map[uint64]charge
	refused := 0
	for i, r := range batch {
		k := q.limited(*rated, r)
		if k != nil {
			paid, no := k.enter(r.SizeVT, q.id, now)
			if no != nil {
				if refused == 0 {
					rest = append(make([]*kvpb.Request, 0, len(batch)-1), batch[:i]...)
				}
				refused++
				q.refuse(r, no, reply)
				continue
			}
			if charged == nil {
				charged = make(map[uint64]charge, len(batch))
			}
			charged[r.Id] = charge{k, paid}
		}
		if refused > 0 {
			rest = append(rest, r)
		}
	}
	if refused == 0 {
		rest = batch
	} else {
		q.hurry(now)
	}
	if charged == nil {
		return rest, reply
	}
	return rest, func(r *kvpb.Response) {
		if c := charged[r.Id]; c.keyspace != nil {
			c.answered(r)
		}
		reply(r)
	}
}

// charge is what a request has paid.
type charge struct {
	*keyspace
	paid float64
}

// answered has the answer pay. A request that the node was too busy for has paid for nothing.
func (c charge) answered(r *kvpb.Response) {
	if e := r.GetError(); e.GetCode() == kvpb.ErrorCode_OVERLOADED &&
		e.Cause != kvpb.ErrorCause_CAUSE_TOO_LARGE {
		c.refund(c.paid, time.Now())
		return
	}
	c.keyspace.answered(r.SizeVT, time.Now())
}

// limited returns the keyspace whose quotas a request counts for; nil if it counts for none.
func (q *Quotas) limited(rated map[keys.KeyspaceID]*keyspace, r *kvpb.Request) *keyspace {
	c := command.Of(r)
	if c.Foreground == nil || r.Background || r.Admit ||
		c.Dispatch == command.InQueue && r.Term == 0 {
		return nil
	}
	partition := r.Partition
	if c.Dispatch == command.ByNode {
		if all := r.GetMultiGet().GetPartitions(); len(all) > 0 {
			partition = all[0].GetPartition()
		}
		if all := r.GetMergeScan().GetPartitions(); len(all) > 0 {
			partition = all[0].GetPartition()
		}
	}
	return rated[keys.KeyspaceID(q.node.KeyspaceOf(partition))]
}

// refuse answers a request whose keyspace has reached a quota.
func (q *Quotas) refuse(r *kvpb.Request, no *refusal, reply func(*kvpb.Response)) {
	q.refused[no.kind].Inc()
	q.node.Refuse(r, &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED,
		Cause: kvpb.ErrorCause_CAUSE_QUOTA, Message: no.text,
		RetryAfterMicros: uint64(no.wait.Microseconds())}, reply)
}

// hurry has the core hear soon that requests were refused: the node may get a larger part.
func (q *Quotas) hurry(now time.Time) {
	last := q.hurried.Load()
	if q.nodes.Load() > 1 && now.UnixNano()-last >= int64(hurryPause) &&
		q.hurried.CompareAndSwap(last, now.UnixNano()) {
		q.node.HurryHeartbeat()
	}
}
