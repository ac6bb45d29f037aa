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
	// sessionSeconds is the term of a lease that is granted to a caller without one.
	sessionSeconds = 60
	// leavingTimeout is how long after the end of a call its place in the queue may be deleted.
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

// queue is the common part of Lock and Election.
type queue struct {
	*backend.Backend
	kv     KV
	leases Leases
}

// place is a place in a queue.
type place struct {
	key []byte
	// revision is the revision that created the place.
	revision int64
}

// below returns the range of the keys of a name.
func below(name []byte) (prefix, end []byte) {
	prefix = append(bytes.Clone(name), '/')
	return prefix, append(bytes.Clone(name), '/'+1)
}

// leaseOf returns the lease that a request names, or a new one.
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

// first returns the request for the first key in the queue of a name.
func first(name []byte) *pb.RangeRequest {
	prefix, end := below(name)
	return &pb.RangeRequest{Key: prefix, RangeEnd: end, Limit: 1,
		SortOrder: pb.RangeRequest_ASCEND, SortTarget: pb.RangeRequest_CREATE}
}

// enter takes the lease's place in the queue, or finds its present one. The answer has that key (if
// it existed before) and the first key of the queue. If the call ends meanwhile, a place that was
// taken is deleted.
func (q *queue) enter(
	ctx context.Context, name, value []byte, lease int64,
) (place, *pb.TxnResponse, error) {
	prefix, _ := below(name)
	p := place{key: fmt.Appendf(prefix, "%x", lease)}
	// The result of the transaction must be known; otherwise a place might remain for which no call
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

// outlasting returns a context that ends leavingTimeout after another one.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(leavingTimeout, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// leave deletes the place of a call that has ended. If that fails, the place remains until its
// lease ends.
func (q *queue) leave(ctx context.Context, p place) {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), leavingTimeout)
	defer cancel()
	_, _ = q.give(longer, p)
}

// give deletes a place, if it still is the same.
func (q *queue) give(ctx context.Context, p place) (*pb.TxnResponse, error) {
	return q.kv.Txn(ctx, &pb.TxnRequest{Compare: []*pb.Compare{created(p.key, p.revision)},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{
			RequestDeleteRange: &pb.DeleteRangeRequest{Key: p.key}}}}})
}

// errExpired says that a place is lost: its lease has ended, or its key was deleted.
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
		// Any event says that one of the keys is gone, or that the watch cannot tell any more.
		if _, err := events.Next(ctx); err != nil {
			return nil, translate.Error(ctx, err)
		}
		for i := range int64(2) {
			// A watch that has ended by itself is gone already.
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
