package etcdapi

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

type kvServer struct {
	pb.UnimplementedKVServer
	*backend
}

// Range implements etcdserverpb.KVServer.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	if !r.Serializable {
		if err := s.confirm(ctx); err != nil {
			return nil, err
		}
	}
	who, err := s.identify(ctx)
	if err != nil {
		return nil, err
	}
	response, release, err := s.readRange(ctx, who, toRange(r))
	defer release()
	if err != nil {
		return nil, err
	}
	s.fill(response.Header)
	return response, nil
}

// readRange reads what this member has. The revision of the answer is the newest, whatever was
// read. release is called when the answer is needed no more, and also after an error.
func (s *kvServer) readRange(
	ctx context.Context, who *storepb.AuthInfo, q *storepb.Range,
) (response *pb.RangeResponse, release func(), err error) {
	if int64(q.Revision) < 0 {
		q.Revision = 0
	}
	result, release, err := s.Store.ReadTxnAs(ctx, who,
		one(&storepb.Op{Op: &storepb.Op_Range{Range: q}}))
	if err != nil {
		return nil, release, s.toGRPC(ctx, err)
	}
	return fromRange(result.Txn.Results[0].GetRange(), result.Revision), release, nil
}

// Put implements etcdserverpb.KVServer.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	if err := s.checkSize(&pb.InternalRaftRequest{Put: r}); err != nil {
		return nil, err
	}
	result, err := s.execute(ctx,
		txnCommand(one(&storepb.Op{Op: &storepb.Op_Put{Put: toPut(r)}})))
	if err != nil {
		return nil, err
	}
	response := fromPut(result.Txn.Results[0].GetPut(), result.Revision)
	s.fill(response.Header)
	return response, nil
}

// DeleteRange implements etcdserverpb.KVServer.
func (s *kvServer) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	if err := checkDelete(r); err != nil {
		return nil, err
	}
	if err := s.checkSize(&pb.InternalRaftRequest{DeleteRange: r}); err != nil {
		return nil, err
	}
	result, err := s.execute(ctx,
		txnCommand(one(&storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: toDelete(r)}})))
	if err != nil {
		return nil, err
	}
	response := fromDelete(result.Txn.Results[0].GetDeleteRange(), result.Revision)
	s.fill(response.Header)
	return response, nil
}

// Txn implements etcdserverpb.KVServer.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r, s.MaxOperations); err != nil {
		return nil, err
	}
	t := toTxn(r)
	var result *storepb.Result
	var err error
	if store.ReadOnly(t) {
		if !serializable(r) {
			if err := s.confirm(ctx); err != nil {
				return nil, err
			}
		}
		who, err := s.identify(ctx)
		if err != nil {
			return nil, err
		}
		read, release, err := s.Store.ReadTxnAs(ctx, who, t)
		defer release()
		if err != nil {
			return nil, s.toGRPC(ctx, err)
		}
		result = read
	} else {
		if err := s.checkSize(&pb.InternalRaftRequest{Txn: r}); err != nil {
			return nil, err
		}
		result, err = s.execute(ctx, txnCommand(t))
	}
	if err != nil {
		return nil, err
	}
	response := fromTxn(result.Txn, result.Revision)
	s.fill(response.Header)
	return response, nil
}

// serializable says whether a transaction may be read from what a member has: if all its operations
// are ranges that may. Its comparisons do not count, and a nested transaction never may.
func serializable(r *pb.TxnRequest) bool {
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if !op.GetRequestRange().GetSerializable() {
				return false
			}
		}
	}
	return true
}

// compactionTimeouts is how many times longer than other requests a compaction may take: of a long
// history it is done in many steps. One that is given up has been done in part, and goes on from
// there when it is asked for again.
const compactionTimeouts = 10

// Compact implements etcdserverpb.KVServer. What it makes unreadable is removed when a physical one
// is answered, and otherwise soon after.
func (s *kvServer) Compact(
	ctx context.Context, r *pb.CompactionRequest,
) (*pb.CompactionResponse, error) {
	if _, err := s.administer(ctx); err != nil {
		return nil, err
	}
	switch {
	case r.Revision < 0, r.Revision == 0 && s.Store.Compacted() > 0:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision == 0:
		return &pb.CompactionResponse{Header: s.header(0)}, nil
	}
	began, limit := time.Now(), compactionTimeouts*s.RequestTimeout
	result, err := s.executeWithin(ctx, limit, store.Compact(uint64(r.Revision)))
	if err != nil {
		return nil, err
	}
	if r.Physical {
		limited, cancel := context.WithDeadline(ctx, began.Add(limit))
		defer cancel()
		if err := s.Store.AwaitCompaction(limited); err != nil && ctx.Err() == nil &&
			!errors.Is(err, store.ErrClosed) {
			return nil, rpctypes.ErrGRPCTimeout
		} else if err != nil {
			return nil, s.toGRPC(ctx, err)
		}
	}
	return &pb.CompactionResponse{Header: s.header(result.Revision)}, nil
}
