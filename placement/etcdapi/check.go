package etcdapi

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What is wrong with a request whatever the state: etcd's checks, in its order, because a request
// can be wrong in several ways and has one error.

func checkRange(r *pb.RangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	_, order := pb.RangeRequest_SortOrder_name[int32(r.SortOrder)]
	_, target := pb.RangeRequest_SortTarget_name[int32(r.SortTarget)]
	if !order || !target {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// checkRangeStream: what a stream sends first must not depend on what it reads last.
func checkRangeStream(r *pb.RangeRequest) error {
	if err := checkRange(r); err != nil {
		return err
	}
	byKey := r.SortTarget == pb.RangeRequest_KEY && r.SortOrder == pb.RangeRequest_ASCEND
	if r.SortOrder != pb.RangeRequest_NONE && !byKey {
		return status.Error(codes.Unimplemented, "RangeStream does not support custom sort orders")
	}
	if r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 ||
		r.MaxCreateRevision != 0 {
		return status.Error(codes.Unimplemented, "RangeStream does not support revision filters")
	}
	return nil
}

func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) > 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

func checkDelete(r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// checkTxn lets a transaction have room operations in its longest list, and those nested in it what
// that leaves.
func checkTxn(r *pb.TxnRequest, room int) error {
	if room -= max(len(r.Compare), len(r.Success), len(r.Failure)); room < 0 {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range ops {
			if err := checkOperation(op, room); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkOperation(op *pb.RequestOp, room int) error {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return checkDelete(op.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return checkTxn(op.RequestTxn, room)
	}
	return rpctypes.ErrGRPCKeyNotFound // etcd's answer to an operation that says nothing
}
