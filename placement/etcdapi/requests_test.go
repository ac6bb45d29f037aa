package etcdapi

import (
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// requests makes requests by chance. There are few keys, so that requests meet; no more than 12,
// because etcd leaves the order of more pairs open that are equal in what they are ordered by.
type requests struct {
	*rand.Rand
	b *both
}

var (
	testKeys = []string{"a", "a\x00", "aa", "b", "b\xff", "c", "cc", "d", "\x00", "\xff", "\xff\xff"}
	// testEnds are the bounds of ranges that are no keys.
	testEnds   = []string{"\x00", "\x00\x00", "ab", "e", "a\x00\x00", "\xff\xff\xff", "", "A"}
	testValues = []string{"", "1", "2", "20", "\x00", "longer value"}
	testLeases = []int64{1, 2, 3, -1, -7, 1<<63 - 1, -1 << 63}
)

func pick[T any](q *requests, from []T) T { return from[q.IntN(len(from))] }

// one in n.
func (q *requests) rarely(n int) bool { return q.IntN(n) == 0 }

func (q *requests) key() []byte {
	if q.rarely(150) {
		return nil
	}
	return []byte(pick(q, testKeys))
}

func (q *requests) end() []byte {
	switch q.IntN(6) {
	case 0, 1:
		return nil
	case 2:
		return []byte{0}
	case 3:
		return []byte(pick(q, testEnds))
	}
	return []byte(pick(q, testKeys))
}

// revision is near those that there are; sometimes none.
func (q *requests) revision() int64 {
	switch q.IntN(12) {
	case 0:
		return q.b.revision + q.Int64N(3)
	case 1:
		return q.b.compacted + q.Int64N(4) - 2
	case 2:
		return -q.Int64N(4)
	case 3, 4, 5:
		return q.b.compacted + q.Int64N(q.b.revision-q.b.compacted+1)
	}
	return 0
}

// bound is a limit for a revision.
func (q *requests) bound() int64 {
	switch q.IntN(8) {
	case 0:
		return -q.Int64N(3)
	case 1, 2:
		return max(0, q.b.revision-q.Int64N(30))
	}
	return 0
}

func (q *requests) readRange() *pb.RangeRequest {
	r := &pb.RangeRequest{Key: q.key(), RangeEnd: q.end(), Revision: q.revision(),
		Serializable: q.rarely(2), KeysOnly: q.rarely(4), CountOnly: q.rarely(6)}
	if q.rarely(2) {
		r.Limit = q.Int64N(7) - 1
	}
	if q.rarely(2) {
		r.SortOrder = pb.RangeRequest_SortOrder(q.IntN(3))
		r.SortTarget = pb.RangeRequest_SortTarget(q.IntN(5))
	}
	if q.rarely(3) {
		r.MinModRevision, r.MaxModRevision = q.bound(), q.bound()
		r.MinCreateRevision, r.MaxCreateRevision = q.bound(), q.bound()
	}
	if q.rarely(200) {
		r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(q.IntN(5)),
			pb.RangeRequest_SortTarget(q.IntN(9)-2)
	}
	return r
}

func (q *requests) put(key []byte) *pb.PutRequest {
	r := &pb.PutRequest{Key: key, PrevKv: q.rarely(2)}
	if r.IgnoreValue = q.rarely(6); !r.IgnoreValue || q.rarely(10) {
		r.Value = []byte(pick(q, testValues))
	}
	if r.IgnoreLease = q.rarely(6); (!r.IgnoreLease || q.rarely(10)) && q.rarely(3) {
		r.Lease = pick(q, testLeases)
	}
	return r
}

func (q *requests) compareKey() *pb.Compare {
	c := &pb.Compare{Key: q.key(), Target: pb.Compare_CompareTarget(q.IntN(5)),
		Result: pb.Compare_CompareResult(q.IntN(4))}
	if q.rarely(3) {
		c.RangeEnd = q.end()
	}
	near := q.b.revision - q.Int64N(20)
	target := c.Target
	if q.rarely(30) {
		target = pb.Compare_CompareTarget(q.IntN(6)) // none, or for another target
	}
	switch target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: q.Int64N(4)}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: near}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: near}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: []byte(pick(q, testValues))}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: pick(q, testLeases)}
	}
	return c
}

// txn makes a transaction that puts only keys of those given, and returns those that it does not. It
// deletes only keys at or above from. So it does not write a key twice.
func (q *requests) txn(depth int, puts []string, from string) (*pb.TxnRequest, []string) {
	r := &pb.TxnRequest{}
	for range q.IntN(3) {
		r.Compare = append(r.Compare, q.compareKey())
	}
	var left, leftElse []string
	r.Success, left = q.operations(depth, puts, from)
	r.Failure, leftElse = q.operations(depth, puts, from)
	return r, slices.DeleteFunc(left, func(k string) bool { return !slices.Contains(leftElse, k) })
}

func (q *requests) operations(
	depth int, puts []string, from string,
) (ops []*pb.RequestOp, left []string) {
	left = slices.Clone(puts)
	for range q.IntN(4) {
		op := &pb.RequestOp{}
		switch q.IntN(7) {
		case 0, 1, 2:
			op.Request = &pb.RequestOp_RequestRange{RequestRange: q.readRange()}
		case 3, 4:
			if len(left) == 0 {
				continue
			}
			i := q.IntN(len(left))
			op.Request = &pb.RequestOp_RequestPut{RequestPut: q.put([]byte(left[i]))}
			left = slices.Delete(left, i, i+1)
		case 5:
			d := &pb.DeleteRangeRequest{Key: q.key(), RangeEnd: q.end(), PrevKv: q.rarely(2)}
			if string(d.Key) < from && len(d.Key) > 0 {
				continue
			}
			op.Request = &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: d}
		case 6:
			if depth == 0 {
				continue
			}
			var t *pb.TxnRequest
			t, left = q.txn(depth-1, left, from)
			op.Request = &pb.RequestOp_RequestTxn{RequestTxn: t}
		}
		if q.rarely(300) {
			op.Request = nil
		}
		ops = append(ops, op)
	}
	return ops, left
}

func (q *requests) topTxn() *pb.TxnRequest {
	from := pick(q, testKeys)
	var puts []string
	for _, key := range testKeys {
		if key < from {
			puts = append(puts, key)
		}
	}
	r, _ := q.txn(2, puts, from)
	if q.rarely(50) {
		// It may write a key twice, so that etcd notices it.
		r.Success = append(r.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
			RequestPut: q.put([]byte(pick(q, testKeys)))}})
		r.Success = slices.DeleteFunc(r.Success, func(op *pb.RequestOp) bool {
			return op.GetRequestTxn() != nil || string(op.GetRequestDeleteRange().GetRangeEnd()) == "\x00"
		})
	}
	return r
}

func (q *requests) next() proto.Message {
	switch n := q.IntN(100); {
	case n < 25:
		return q.put(q.key())
	case n < 45:
		return q.readRange()
	case n < 50:
		r := q.readRange()
		if r.SortOrder == pb.RangeRequest_NONE {
			r.SortTarget = pb.RangeRequest_KEY // etcd goes astray where that changes the order
		}
		return &streamed{r}
	case n < 58:
		return &pb.DeleteRangeRequest{Key: q.key(), RangeEnd: q.end(), PrevKv: q.rarely(2)}
	case n < 80:
		return q.topTxn()
	case n < 82:
		return q.compaction()
	case n < 87:
		return &pb.LeaseGrantRequest{ID: pick(q, testLeases),
			TTL: pick(q, []int64{600, 1000, 9_000_000_000, 9_000_000_001, 1 << 62})}
	case n < 89:
		return &pb.LeaseRevokeRequest{ID: pick(q, testLeases)}
	case n < 92:
		return &pb.LeaseTimeToLiveRequest{ID: pick(q, testLeases), Keys: q.rarely(2)}
	case n < 94:
		return &pb.LeaseLeasesRequest{}
	case n < 97:
		return &pb.LeaseKeepAliveRequest{ID: pick(q, testLeases)}
	case n < 98:
		// Of revisions below, etcd has kept some sums.
		return &pb.HashKVRequest{Revision: max(q.b.compacted, q.revision())}
	}
	return &pb.AlarmRequest{}
}

func (q *requests) compaction() *pb.CompactionRequest {
	r := &pb.CompactionRequest{Physical: q.rarely(2)}
	switch q.IntN(5) {
	case 0:
		r.Revision = q.b.revision + 1 - q.Int64N(3)
	case 1:
		r.Revision = q.b.compacted + 1 - q.Int64N(3)
	default:
		r.Revision = q.b.revision - q.Int64N(40)
	}
	if r.Revision == 0 {
		r.Revision = 1 // what etcd says of revision 0 depends on how often it was asked
	}
	return r
}
