package lockqueue

import (
	"bytes"
	"context"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// sessionSeconds is the term of a lease that is granted to a caller that names none.
	sessionSeconds = 60
	// leavingTimeout is how long after the end of a call its place in the queue may be given back.
	leavingTimeout = 2 * time.Second
)

// KV is what a queue needs of etcd's KV service.
type KV interface {
	Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error)
	DeleteRange(context.Context, *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error)
	Txn(context.Context, *pb.TxnRequest) (*pb.TxnResponse, error)
}

// Leases is what a queue needs of etcd's Lease service.
type Leases interface {
	LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error)
}

// New makes the services Lock and Election over the keys of a store.
func New(
	b *backend.Backend, kv KV, leases Leases,
) (v3lockpb.LockServer, v3electionpb.ElectionServer) {
	q := &queue{Backend: b, kv: kv, leases: leases}
	return &lockServer{queue: q}, &electionServer{queue: q}
}

// queue does what Lock and Election have in common.
type queue struct {
	*backend.Backend
	kv     KV
	leases Leases
}

// place is a place in a queue.
type place struct {
	key []byte
	// revision is the one that created it.
	revision int64
}

// below is where the keys of a name are.
func below(name []byte) (prefix, end []byte) {
	prefix = append(bytes.Clone(name), '/')
	return prefix, append(bytes.Clone(name), '/'+1)
}

// leaseOf is the lease that a request names, or a new one.
func (q *queue) leaseOf(ctx context.Context, lease int64) (int64, error) {
	if lease != 0 {
		return lease, nil
	}
	granted, err := q.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: sessionSeconds})
	return granted.GetID(), err
}

func created(key []byte, at int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_CREATE, Result: pb.Compare_EQUAL,
		TargetUnion: &pb.Compare_CreateRevision{CreateRevision: at}}
}

func getting(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func putting(key, value []byte, lease int64) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key,
		Value: value, Lease: lease}}}
}

// first is the request for the first in the queue below a name.
func first(name []byte) *pb.RangeRequest {
	prefix, end := below(name)
	return &pb.RangeRequest{Key: prefix, RangeEnd: end, Limit: 1,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE}
}

// enter takes the lease's place in the queue, or finds the one that it has. The answer has that key
// (if it was there) and the first in the queue. A place that was taken although the call has ended
// meanwhile is given back.
func (q *queue) enter(
	ctx context.Context, name, value []byte, lease int64,
) (place, *pb.TxnResponse, error) {
	prefix, _ := below(name)
	p := place{key: fmt.Appendf(prefix, "%x", lease)}
	// What becomes of the transaction has to be known, or a place might be left at which no call
	// waits.
	longer, cancel := outlasting(ctx)
	defer cancel()
	answer, err := q.kv.Txn(longer, &pb.TxnRequest{
		Compare: []*pb.Compare{created(p.key, 0)},
		Success: []*pb.RequestOp{putting(p.key, value, lease), getting(first(name))},
		Failure: []*pb.RequestOp{getting(&pb.RangeRequest{Key: p.key}), getting(first(name))},
	})
	if err != nil {
		return p, nil, err
	}
	p.revision = answer.Header.Revision
	if !answer.Succeeded {
		p.revision = answer.Responses[0].GetResponseRange().Kvs[0].CreateRevision
	}
	if err := ctx.Err(); err != nil {
		if answer.Succeeded {
			q.leave(ctx, p)
		}
		return p, nil, status.FromContextError(err).Err()
	}
	return p, answer, nil
}

// outlasting is a context that ends leavingTimeout after the other one.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leavingTimeout, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// leave gives a place back for a call that has ended. If that fails, the place is there until its
// lease ends.
func (q *queue) leave(ctx context.Context, p place) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavingTimeout)
	defer cancel()
	_, _ = q.give(longer, p)
}

// give gives a place back, if it is still that one.
func (q *queue) give(ctx context.Context, p place) (*pb.TxnResponse, error) {
	return q.kv.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{created(p.key, p.revision)},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: p.key}}}}})
}

// errExpired is for a place that is lost: its lease has ended, or its key was deleted.
var errExpired = status.Error(codes.Unknown, "mutex: session is expired")

// wait returns when a place is the first in its queue, with the header of a read that shows it. The
// error is errExpired if the place is lost before.
func (q *queue) wait(ctx context.Context, name []byte, p place) (*pb.ResponseHeader, error) {
	events, err := q.Store.NewWatchStream()
	if err != nil {
		return nil, translate.Error(ctx, err)
	}
	defer events.Close()
	prefix, end := below(name)
	before := &pb.RangeRequest{Key: prefix, RangeEnd: end, Limit: 1,
		SortOrder: pb.RangeRequest_DESCEND, SortTarget: pb.RangeRequest_CREATE,
		MaxCreateRevision: p.revision - 1, KeysOnly: true}
	for id := int64(0); ; id += 2 {
		answer, err := q.kv.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{getting(before),
			getting(&pb.RangeRequest{Key: p.key, KeysOnly: true})}})
		if err != nil {
			return nil, err
		}
		own := answer.Responses[1].GetResponseRange().Kvs
		if len(own) == 0 || own[0].CreateRevision != p.revision {
			return nil, errExpired
		}
		ahead := answer.Responses[0].GetResponseRange().Kvs
		if len(ahead) == 0 {
			return answer.Header, nil
		}
		for i, key := range [][]byte{ahead[0].Key, p.key} {
			if err := q.watchEnd(events, id+int64(i), key, answer.Header.Revision+1); err != nil {
				return nil, translate.Error(ctx, err)
			}
		}
		// Whatever comes says that one of the keys is gone, or that it cannot be said any more.
		if _, err := events.Next(ctx); err != nil {
			return nil, translate.Error(ctx, err)
		}
		for i := range int64(2) {
			// One that has ended by itself is not there any more.
			_ = events.Remove(id + i)
		}
	}
}

// watchEnd watches for the deletion of a key.
func (q *queue) watchEnd(events *watch.Stream, id int64, key []byte, from int64) error {
	_, err := events.Add(id, watch.Options{Span: keys.Point(key), From: uint64(from),
		NoPut: true})
	return err
}
