package etcdapi

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

var (
	likeEtcdRequests = flag.Int("etcd.requests", 3000, "requests that TestLikeEtcd makes")
	likeEtcdSeed     = flag.Uint64("etcd.seed", 1, "what TestLikeEtcd makes them from")
)

// A real etcd and ours answer the same to whatever is asked, field by field.
func TestLikeEtcd(t *testing.T) {
	b := newBoth(t)
	q := &requests{Rand: rand.New(rand.NewPCG(*likeEtcdSeed, 0)), b: b}
	for range *likeEtcdRequests {
		b.ask(q.next())
	}
	// All of the history that is left.
	for revision := max(1, b.compacted); revision <= b.revision; revision++ {
		b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision})
	}
	t.Logf("seed %d: %d requests, revisions %d to %d, answers: %v", *likeEtcdSeed, b.done,
		b.compacted, b.revision, b.answers)
}

func putOp(key string, value string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{
		RequestPut: &pb.PutRequest{Key: []byte(key), Value: []byte(value)}}}
}

func deleteOp(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}}}
}

func txnOp(then, otherwise []*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
		RequestTxn: &pb.TxnRequest{Success: then, Failure: otherwise}}}
}

func ops(n int, op func(i int) *pb.RequestOp) (all []*pb.RequestOp) {
	for i := range n {
		all = append(all, op(i))
	}
	return all
}

// Requests that chance does not come to: at the limits, and wrong in a particular way.
func TestLikeEtcdAtLimits(t *testing.T) { askAtLimits(newBoth(t)) }

func askAtLimits(b *both) {
	putN := func(i int) *pb.RequestOp { return putOp(fmt.Sprint("n", i), "") }
	// Nested transactions of n operations each, one in the other.
	nested := func(n, depth int) *pb.RequestOp {
		count := 0
		var make func(depth int) *pb.RequestOp
		make = func(depth int) *pb.RequestOp {
			then := ops(n, func(int) *pb.RequestOp { count++; return putOp(fmt.Sprint("d", count), "") })
			if depth > 0 {
				then[0] = make(depth - 1)
			}
			return txnOp(then, nil)
		}
		return make(depth)
	}
	mebibyte := func(n float64) []byte { return []byte(strings.Repeat("v", int(n*(1<<20)))) }
	compare := func(target, result int32, key string) *pb.TxnRequest {
		return &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte(key),
			Target: pb.Compare_CompareTarget(target), Result: pb.Compare_CompareResult(result)}}}
	}
	requests := []proto.Message{
		&pb.AuthStatusRequest{}, &pb.AuthenticateRequest{Name: "root", Password: "x"},
		&pb.LeaseLeasesRequest{}, &pb.AlarmRequest{Action: pb.AlarmRequest_DEACTIVATE,
			Alarm: pb.AlarmType_NOSPACE}, &pb.DefragmentRequest{},
		&pb.DowngradeRequest{Version: "x"}, &pb.DowngradeRequest{Version: "3.1"},
		&pb.DowngradeRequest{Action: pb.DowngradeRequest_ENABLE, Version: ""},
		&pb.DowngradeRequest{Action: pb.DowngradeRequest_CANCEL},
		&pb.DowngradeRequest{Action: 9},
		&pb.MemberAddRequest{}, &pb.MemberAddRequest{PeerURLs: []string{""}},
		&pb.MemberAddRequest{PeerURLs: []string{"http://host"}},
		&pb.MemberAddRequest{PeerURLs: []string{"ftp://host:1"}},
		&pb.MemberAddRequest{PeerURLs: []string{"http://host:1/path"}},
		&pb.MemberAddRequest{PeerURLs: []string{"host:1"}},
		&pb.MemberAddRequest{PeerURLs: []string{"http://h:1", "%"}},
		// Nothing at all.
		&pb.TxnRequest{}, &pb.RangeRequest{}, &pb.PutRequest{}, &pb.DeleteRangeRequest{},
		&pb.TxnRequest{Success: []*pb.RequestOp{{}}}, &pb.TxnRequest{Compare: []*pb.Compare{{}}},
		&pb.TxnRequest{Failure: []*pb.RequestOp{txnOp(nil, []*pb.RequestOp{{}})}},
		&pb.CompactionRequest{Revision: -1}, &pb.CompactionRequest{Revision: 99},
		&pb.RangeRequest{Key: []byte("a"), Revision: 99},
		&pb.RangeRequest{Key: []byte("a"), Revision: -9},
		&streamed{&pb.RangeRequest{Key: []byte("a"), Revision: 99}}, &streamed{&pb.RangeRequest{}},
		&pb.RangeRequest{Key: []byte("a"), SortOrder: 9},
		&streamed{&pb.RangeRequest{Key: []byte("a"), SortOrder: pb.RangeRequest_DESCEND}},
		&streamed{&pb.RangeRequest{Key: []byte("a"), MaxModRevision: 1}},
		&pb.HashKVRequest{Revision: 99}, &pb.HashKVRequest{},
		// Leases.
		&pb.LeaseGrantRequest{}, &pb.LeaseGrantRequest{TTL: 1}, &pb.LeaseGrantRequest{TTL: -5},
		&pb.LeaseGrantRequest{ID: 5, TTL: 0}, &pb.LeaseGrantRequest{ID: 5, TTL: 9_000_000_001},
		&pb.LeaseRevokeRequest{ID: 5}, &pb.LeaseRevokeRequest{ID: 5}, &pb.LeaseRevokeRequest{},
		&pb.LeaseKeepAliveRequest{}, &pb.LeaseTimeToLiveRequest{},
		&pb.PutRequest{Key: []byte("a"), Lease: 5},
		&pb.PutRequest{Key: []byte("a"), IgnoreValue: true, Value: []byte("x")},
		&pb.PutRequest{Key: []byte("a"), IgnoreLease: true, Lease: 5},
		&pb.PutRequest{Key: []byte("a"), IgnoreLease: true},
		// How many operations.
		&pb.TxnRequest{Success: ops(128, putN)}, &pb.TxnRequest{Success: ops(129, putN)},
		&pb.TxnRequest{Success: ops(128, putN), Failure: ops(128, putN)},
		&pb.TxnRequest{Success: []*pb.RequestOp{nested(64, 0), putOp("top", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{nested(32, 2)}},
		&pb.TxnRequest{Success: []*pb.RequestOp{nested(32, 3)}},
		&pb.TxnRequest{Success: []*pb.RequestOp{nested(1, 126)}},
		&pb.TxnRequest{Success: []*pb.RequestOp{nested(1, 127)}},
		&pb.TxnRequest{Success: ops(127, func(i int) *pb.RequestOp {
			return txnOp([]*pb.RequestOp{putOp(fmt.Sprint("t", i), "")},
				[]*pb.RequestOp{putOp(fmt.Sprint("f", i), "")})
		})},
		// Keys that are written twice.
		&pb.TxnRequest{Success: []*pb.RequestOp{putOp("k", ""), putOp("k", "")}},
		&pb.TxnRequest{Failure: []*pb.RequestOp{putOp("k", ""), deleteOp("a", "z")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("k", ""), putOp("k", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("a", "k"), putOp("k", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("k", ""), deleteOp("a", "z")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{putOp("k", "")},
			Failure: []*pb.RequestOp{putOp("k", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{putOp("k", ""),
			txnOp([]*pb.RequestOp{putOp("k", "")}, nil)}},
		&pb.TxnRequest{Success: []*pb.RequestOp{txnOp([]*pb.RequestOp{deleteOp("k", "")}, nil),
			putOp("k", "")}},
		&pb.TxnRequest{Success: []*pb.RequestOp{txnOp(nil, []*pb.RequestOp{deleteOp("a", "z")}),
			txnOp([]*pb.RequestOp{putOp("k", "")}, nil)}},
		&pb.TxnRequest{Success: []*pb.RequestOp{txnOp([]*pb.RequestOp{putOp("k", "")},
			[]*pb.RequestOp{deleteOp("k", ""), putOp("l", "")})}},
		// Sizes.
		&pb.PutRequest{Key: []byte("big"), Value: mebibyte(1.4999)},
		&pb.PutRequest{Key: []byte("big"), Value: mebibyte(1.5)},
		&pb.PutRequest{Key: []byte("big"), Value: mebibyte(2.1)},
		&pb.PutRequest{Key: mebibyte(1.4999), PrevKv: true},
		&pb.RangeRequest{Key: mebibyte(1.4999)}, &pb.RangeRequest{Key: mebibyte(1.51)},
		&pb.TxnRequest{Success: []*pb.RequestOp{putOp(string(mebibyte(0.75)), string(mebibyte(0.75)))}},
		&pb.DeleteRangeRequest{Key: mebibyte(1.51)},
		&pb.DeleteRangeRequest{Key: []byte("v"), RangeEnd: []byte("w"), PrevKv: true},
		&streamed{&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}},
	}
	for target := range int32(7) {
		for result := range int32(6) {
			requests = append(requests, compare(target, result, "k"), compare(target, result, "none"))
		}
	}
	for _, r := range requests {
		b.ask(r)
	}
	b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
}

// Many keys, read in all orders that are defined, and in streams of several chunks.
func TestLikeEtcdManyKeys(t *testing.T) {
	b := newBoth(t)
	for i := range 400 {
		b.ask(&pb.PutRequest{Key: fmt.Appendf(nil, "k%03d", i*7%400),
			Value: fmt.Appendf(nil, "%d%s", i, strings.Repeat("-", i*20))})
	}
	for _, target := range []pb.RangeRequest_SortTarget{pb.RangeRequest_KEY, pb.RangeRequest_CREATE,
		pb.RangeRequest_MOD, pb.RangeRequest_VALUE} {
		for order := range pb.RangeRequest_SortOrder(3) {
			for _, limit := range []int64{0, 1, 37, 399, 400, 401} {
				for _, most := range []int64{0, 200} {
					r := &pb.RangeRequest{Key: []byte("k"), RangeEnd: []byte("l"), Limit: limit,
						SortOrder: order, SortTarget: target, MaxModRevision: most,
						Serializable: limit%2 == 0}
					b.ask(r)
					if order == 0 && target == pb.RangeRequest_KEY {
						b.ask(&streamed{r})
					}
				}
			}
		}
	}
}

// Leases that run out take their keys with them, each lease at one revision.
func TestLikeEtcdExpiry(t *testing.T) {
	b := newBoth(t)
	b.ask(&pb.LeaseGrantRequest{ID: 1, TTL: 1})
	b.ask(&pb.LeaseGrantRequest{ID: -1, TTL: 600})
	for i := range 3 {
		b.ask(&pb.PutRequest{Key: fmt.Append(nil, "short", i), Lease: 1})
		b.ask(&pb.PutRequest{Key: fmt.Append(nil, "long", i), Lease: -1})
	}
	b.ask(&pb.PutRequest{Key: []byte("short1")}) // no longer the lease's
	first := &pb.RangeRequest{Key: []byte("short0"), CountOnly: true}
	for _, e := range []*endpoint{b.etcd, b.ours} {
		deadline, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := process.Until(deadline, "the lease has run out", 50*time.Millisecond,
			func(ctx context.Context) error {
				answer, err := e.call(ctx, first)
				if err == nil && answer.(*pb.RangeResponse).Count > 0 {
					err = errors.New("its key is there")
				}
				return err
			}); err != nil {
			t.Error(err)
		}
		cancel()
	}
	b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: b.revision - 1})
	b.ask(&pb.LeaseLeasesRequest{})
	b.ask(&pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
	b.ask(&pb.LeaseKeepAliveRequest{ID: 1})
	b.ask(&pb.PutRequest{Key: []byte("short2"), Lease: 1})
	b.ask(&pb.LeaseRevokeRequest{ID: 1})
	b.ask(&pb.LeaseGrantRequest{ID: 1, TTL: 600})
	b.ask(&pb.LeaseTimeToLiveRequest{ID: 1, Keys: true})
}

// Where this database is stricter, as the package's comment says.
func TestStricterThanEtcd(t *testing.T) {
	b := newBoth(t)
	for _, success := range [][]*pb.RequestOp{
		{deleteOp("a", "\x00"), putOp("b", "")},
		{txnOp([]*pb.RequestOp{putOp("k", "")}, nil), txnOp([]*pb.RequestOp{deleteOp("k", "")}, nil)},
	} {
		r := &pb.TxnRequest{Success: success}
		if _, err := b.etcd.call(t.Context(), r); err != nil {
			t.Errorf("etcd refuses it too: %s: %v", describe(r), err)
		}
		if _, err := b.ours.call(t.Context(), r); !errors.Is(err, rpctypes.ErrGRPCDuplicateKey) {
			t.Errorf("%s: %v", describe(r), err)
		}
	}
}
