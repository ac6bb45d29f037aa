package translate

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// From etcd's messages to the store's. Requests were checked before, and the numbers of the
// enumerations are equal. Bytes are shared, not copied.

// ToRange makes a reading of a range.
func ToRange(r *pb.RangeRequest) *storepb.Range {
	return &storepb.Range{
		Key: r.Key, RangeEnd: r.RangeEnd, Revision: uint64(r.Revision), Limit: uint64(max(r.Limit, 0)),
		KeysOnly: r.KeysOnly, CountOnly: r.CountOnly, Count: true,
		SortOrder:      storepb.Range_SortOrder(r.SortOrder),
		SortTarget:     storepb.Range_SortTarget(r.SortTarget),
		MinModRevision: r.MinModRevision, MaxModRevision: r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision, MaxCreateRevision: r.MaxCreateRevision,
	}
}

// ToPut makes a put.
func ToPut(r *pb.PutRequest) *storepb.Put {
	return &storepb.Put{Key: r.Key, Value: r.Value, Lease: r.Lease, Previous: r.PrevKv,
		IgnoreValue: r.IgnoreValue, IgnoreLease: r.IgnoreLease}
}

// ToDelete makes a deletion of a range.
func ToDelete(r *pb.DeleteRangeRequest) *storepb.DeleteRange {
	return &storepb.DeleteRange{Key: r.Key, RangeEnd: r.RangeEnd, Previous: r.PrevKv}
}

func toCompare(c *pb.Compare) *storepb.Compare {
	to := &storepb.Compare{Key: c.Key, RangeEnd: c.RangeEnd,
		Target: storepb.Compare_Target(c.Target), Relation: storepb.Compare_Relation(c.Result)}
	// Values for a target other than the compared one are ignored.
	switch c.Target {
	case pb.Compare_VERSION:
		to.Number = c.GetVersion()
	case pb.Compare_CREATE:
		to.Number = c.GetCreateRevision()
	case pb.Compare_MOD:
		to.Number = c.GetModRevision()
	case pb.Compare_LEASE:
		to.Number = c.GetLease()
	case pb.Compare_VALUE:
		to.Value = c.GetValue()
	}
	return likeEtcd(to)
}

// likeEtcd replaces meaningless comparisons by ones with the result that they have in etcd: an
// unknown target is always equal, and an unknown relation always holds, except between the value of
// a key that does not exist and another.
func likeEtcd(c *storepb.Compare) *storepb.Compare {
	_, target := storepb.Compare_Target_name[int32(c.Target)]
	_, relation := storepb.Compare_Relation_name[int32(c.Relation)]
	if target && relation {
		return c
	}
	// A version is always above -1, and above 0 if the key exists.
	instead := &storepb.Compare{Key: c.Key, RangeEnd: c.RangeEnd, Target: storepb.Compare_VERSION,
		Relation: storepb.Compare_GREATER, Number: -1}
	switch {
	case relation && c.Relation != storepb.Compare_EQUAL:
		instead.Relation = storepb.Compare_LESS
	case c.Target == storepb.Compare_VALUE:
		instead.Number = 0
	}
	return instead
}

// ToTxn makes a transaction.
func ToTxn(r *pb.TxnRequest) *storepb.Txn {
	t := &storepb.Txn{Success: toOperations(r.Success), Failure: toOperations(r.Failure)}
	for _, c := range r.Compare {
		t.Compare = append(t.Compare, toCompare(c))
	}
	return t
}

func toOperations(ops []*pb.RequestOp) []*storepb.Op {
	var all []*storepb.Op
	for _, op := range ops {
		to := &storepb.Op{}
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			to.Op = &storepb.Op_Range{Range: ToRange(op.RequestRange)}
		case *pb.RequestOp_RequestPut:
			to.Op = &storepb.Op_Put{Put: ToPut(op.RequestPut)}
		case *pb.RequestOp_RequestDeleteRange:
			to.Op = &storepb.Op_DeleteRange{DeleteRange: ToDelete(op.RequestDeleteRange)}
		case *pb.RequestOp_RequestTxn:
			to.Op = &storepb.Op_Txn{Txn: ToTxn(op.RequestTxn)}
		}
		all = append(all, to)
	}
	return all
}

// One returns a transaction of one operation, which is executed whatever the state.
func One(op *storepb.Op) *storepb.Txn { return &storepb.Txn{Success: []*storepb.Op{op}} }

// TxnCommand returns the command that executes a transaction.
func TxnCommand(t *storepb.Txn) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: t}}
}

// From the store's results to etcd's.

// FromKeyValue converts a pair; nil for nil.
func FromKeyValue(kv *storepb.KeyValue) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	to := &mvccpb.KeyValue{}
	fillKeyValue(to, kv)
	return to
}

func fromKeyValues(kvs []*storepb.KeyValue) []*mvccpb.KeyValue {
	all := make([]*mvccpb.KeyValue, len(kvs))
	for i, kv := range kvs {
		all[i] = FromKeyValue(kv)
	}
	return all
}

// FromRange makes the answer to a range, with a header that has only the revision.
func FromRange(r *storepb.RangeResult, revision uint64) *pb.RangeResponse {
	if len(r.GetKvs()) == 1 {
		return fromKey(r, revision)
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: int64(revision)},
		Kvs: fromKeyValues(r.GetKvs()), More: r.GetMore(), Count: int64(r.GetCount())}
}

// fromKey is FromRange for one pair, in one allocation.
func fromKey(r *storepb.RangeResult, revision uint64) *pb.RangeResponse {
	all := &struct {
		response pb.RangeResponse
		header   pb.ResponseHeader
		pair     mvccpb.KeyValue
		list     [1]*mvccpb.KeyValue
	}{}
	fillKeyValue(&all.pair, r.Kvs[0])
	all.list[0] = &all.pair
	all.header.Revision = int64(revision)
	all.response.Header, all.response.Kvs = &all.header, all.list[:]
	all.response.More, all.response.Count = r.More, int64(r.Count)
	return &all.response
}

func fillKeyValue(to *mvccpb.KeyValue, kv *storepb.KeyValue) {
	to.Key, to.Value, to.Lease = kv.Key, kv.Value, kv.Lease
	to.CreateRevision, to.ModRevision = int64(kv.CreateRevision), int64(kv.ModRevision)
	to.Version = int64(kv.Version)
}

// FromPut makes the answer to a put, with a header that has only the revision.
func FromPut(r *storepb.PutResult, revision uint64) *pb.PutResponse {
	return &pb.PutResponse{Header: &pb.ResponseHeader{Revision: int64(revision)},
		PrevKv: FromKeyValue(r.GetPrevious())}
}

// FromDelete makes the answer to a deletion, with a header that has only the revision.
func FromDelete(r *storepb.DeleteRangeResult, revision uint64) *pb.DeleteRangeResponse {
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{Revision: int64(revision)},
		Deleted: int64(r.GetDeleted()), PrevKvs: fromKeyValues(r.GetPrevious())}
}

// wrote reports whether a transaction has changed a key.
func wrote(t *storepb.TxnResult) bool {
	for _, r := range t.GetResults() {
		switch r := r.GetOp().(type) {
		case *storepb.OpResult_Put:
			return true
		case *storepb.OpResult_DeleteRange:
			if r.DeleteRange.GetDeleted() > 0 {
				return true
			}
		case *storepb.OpResult_Txn:
			if wrote(r.Txn) {
				return true
			}
		}
	}
	return false
}

// answers assigns each operation of a transaction the revision that etcd assigns to it: the
// transaction's own from its first change on, and the one before until then.
type answers struct{ revision uint64 }

// FromTxn makes the answer to a transaction, with a header that has only the revision.
func FromTxn(t *storepb.TxnResult, revision uint64) *pb.TxnResponse {
	a := &answers{revision}
	if wrote(t) {
		a.revision--
	}
	response := a.txn(t, revision)
	response.Header = &pb.ResponseHeader{Revision: int64(revision)}
	return response
}

func (a *answers) txn(t *storepb.TxnResult, revision uint64) *pb.TxnResponse {
	// As in etcd, a nested transaction has an empty header.
	response := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: t.GetSucceeded()}
	for _, r := range t.GetResults() {
		one := &pb.ResponseOp{}
		switch r := r.GetOp().(type) {
		case *storepb.OpResult_Range:
			one.Response = &pb.ResponseOp_ResponseRange{ResponseRange: FromRange(r.Range, a.revision)}
		case *storepb.OpResult_Put:
			a.revision = revision
			one.Response = &pb.ResponseOp_ResponsePut{ResponsePut: FromPut(r.Put, revision)}
		case *storepb.OpResult_DeleteRange:
			if r.DeleteRange.GetDeleted() > 0 {
				a.revision = revision
			}
			one.Response = &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: FromDelete(r.DeleteRange, a.revision)}
		case *storepb.OpResult_Txn:
			one.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: a.txn(r.Txn, revision)}
		}
		response.Responses = append(response.Responses, one)
	}
	return response
}
