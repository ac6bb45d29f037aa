package etcdapi

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

type kvServer struct {
	pb.UnimplementedKVServer
	*shared
}

// Range implements etcdserverpb.KVServer.
func (s *kvServer) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := translate.CheckRange(r); err != nil {
		return nil, err
	}
	if !r.Serializable {
		if err := s.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	who, err := s.Identify(ctx)
	if err != nil {
		return nil, err
	}
	response, release, err := s.readRange(ctx, who, translate.ToRange(r))
	defer release()
	if err != nil {
		return nil, err
	}
	s.Fill(response.Header)
	return response, nil
}

// readRange reads this member's state. The revision of the answer is the newest, whatever revision
// was read. The caller calls release when it no longer needs the answer, also after an error.
func (s *kvServer) readRange(
	ctx context.Context, who *storepb.AuthInfo, q *storepb.Range,
) (response *pb.RangeResponse, release func(), err error) {
	if int64(q.Revision) < 0 {
		q.Revision = 0
	}
	result, release, err := s.Store.ReadTxnAs(ctx, who,
		translate.One(&storepb.Op{Op: &storepb.Op_Range{Range: q}}))
	if err != nil {
		return nil, release, translate.Error(ctx, err)
	}
	return translate.FromRange(result.Txn.Results[0].GetRange(), result.Revision), release, nil
}

// Put implements etcdserverpb.KVServer.
func (s *kvServer) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := translate.CheckPut(r); err != nil {
		return nil, err
	}
	if err := translate.CheckSize(&pb.InternalRaftRequest{Put: r}, s.MaxRequestBytes); err != nil {
		return nil, err
	}
	put := &storepb.Op{Op: &storepb.Op_Put{Put: translate.ToPut(r)}}
	result, err := s.Execute(ctx, translate.TxnCommand(translate.One(put)))
	if err != nil {
		return nil, err
	}
	response := translate.FromPut(result.Txn.Results[0].GetPut(), result.Revision)
	s.Fill(response.Header)
	return response, nil
}

// DeleteRange implements etcdserverpb.KVServer.
func (s *kvServer) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest,
) (*pb.DeleteRangeResponse, error) {
	if err := translate.CheckDelete(r); err != nil {
		return nil, err
	}
	size := &pb.InternalRaftRequest{DeleteRange: r}
	if err := translate.CheckSize(size, s.MaxRequestBytes); err != nil {
		return nil, err
	}
	deletion := &storepb.Op{Op: &storepb.Op_DeleteRange{DeleteRange: translate.ToDelete(r)}}
	result, err := s.Execute(ctx, translate.TxnCommand(translate.One(deletion)))
	if err != nil {
		return nil, err
	}
	response := translate.FromDelete(result.Txn.Results[0].GetDeleteRange(), result.Revision)
	s.Fill(response.Header)
	return response, nil
}

// Txn implements etcdserverpb.KVServer.
func (s *kvServer) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := translate.CheckTxn(r, s.MaxOperations); err != nil {
		return nil, err
	}
	t := translate.ToTxn(r)
	var result *storepb.Result
	var err error
	if store.ReadOnly(t) {
		if !serializable(r) {
			if err := s.Confirm(ctx); err != nil {
				return nil, err
			}
		}
		who, err := s.Identify(ctx)
		if err != nil {
			return nil, err
		}
		read, release, err := s.Store.ReadTxnAs(ctx, who, t)
		defer release()
		if err != nil {
			return nil, translate.Error(ctx, err)
		}
		result = read
	} else {
		if err := translate.CheckSize(&pb.InternalRaftRequest{Txn: r}, s.MaxRequestBytes); err != nil {
			return nil, err
		}
		result, err = s.Execute(ctx, translate.TxnCommand(t))
	}
	if err != nil {
		return nil, err
	}
	response := translate.FromTxn(result.Txn, result.Revision)
	s.Fill(response.Header)
	return response, nil
}

// serializable reports whether a transaction may be read from this member's own state: all its
// operations must be serializable ranges. Its comparisons do not matter, and a nested transaction
// is never serializable.
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

// compactionTimeouts is how many times longer than other requests a compaction may take: for a long
// history it takes many steps. If it is given up, a part is done, and the next request continues
// from there.
const compactionTimeouts = 10

// Compact implements etcdserverpb.KVServer. A physical compaction is answered when the compacted
// versions are removed; otherwise they are removed soon after.
func (s *kvServer) Compact(
	ctx context.Context, r *pb.CompactionRequest,
) (*pb.CompactionResponse, error) {
	if _, err := s.Administer(ctx); err != nil {
		return nil, err
	}
	switch {
	case r.Revision < 0, r.Revision == 0 && s.Store.Compacted() > 0:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision == 0:
		return &pb.CompactionResponse{Header: s.Header(0)}, nil
	}
	began, limit := time.Now(), compactionTimeouts*backend.RequestTimeout
	result, err := s.ExecuteWithin(ctx, limit, store.Compact(uint64(r.Revision)))
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
			return nil, translate.Error(ctx, err)
		}
	}
	return &pb.CompactionResponse{Header: s.Header(result.Revision)}, nil
}
