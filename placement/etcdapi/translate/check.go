package translate

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// The checks are etcd's, in etcd's order: a request can be wrong in several ways, and must get the
// same error as in etcd.

// CheckRange refuses a range that etcd would refuse whatever the state.
func CheckRange(r *pb.RangeRequest) error {
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

// CheckRangeStream is CheckRange for a range in chunks: the first chunk must not depend on what is
// read last.
func CheckRangeStream(r *pb.RangeRequest) error {
	if err := CheckRange(r); err != nil {
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

// CheckPut refuses a put that etcd would refuse whatever the state.
func CheckPut(r *pb.PutRequest) error {
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

// CheckDelete refuses a deletion that etcd would refuse whatever the state.
func CheckDelete(r *pb.DeleteRangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	return nil
}

// CheckTxn refuses a transaction that etcd would refuse whatever the state. Its longest list may
// have room operations, and nested transactions may use the rest.
func CheckTxn(r *pb.TxnRequest, room int) error {
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
		return CheckRange(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return CheckPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		return CheckDelete(op.RequestDeleteRange)
	case *pb.RequestOp_RequestTxn:
		return CheckTxn(op.RequestTxn, room)
	}
	return rpctypes.ErrGRPCKeyNotFound // etcd's answer to an empty operation
}

// CheckSize refuses a request that would be larger than most bytes in etcd's log, as etcd's limit
// does.
func CheckSize(r *pb.InternalRaftRequest, most int) error {
	r.Header = &pb.RequestHeader{ID: 1 << 63}
	if proto.Size(r) > most {
		return ErrTooLarge
	}
	return nil
}
