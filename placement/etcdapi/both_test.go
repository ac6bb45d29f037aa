package etcdapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// endpoint is a server of the etcd API, reached with nothing between: a client library would hide
// fields and retry.
type endpoint struct{ connection grpc.ClientConnInterface }

func connect(t testing.TB, address string) *endpoint {
	t.Helper()
	connection, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	return &endpoint{connection: connection}
}

// call does a request of whichever kind. The answer of a stream is one message: all that it sent.
func (e *endpoint) call(ctx context.Context, request proto.Message) (proto.Message, error) {
	kv := pb.NewKVClient(e.connection)
	lease := pb.NewLeaseClient(e.connection)
	maintenance := pb.NewMaintenanceClient(e.connection)
	switch r := request.(type) {
	case *pb.RangeRequest:
		return kv.Range(ctx, r)
	case *pb.PutRequest:
		return kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		return kv.DeleteRange(ctx, r)
	case *pb.TxnRequest:
		return kv.Txn(ctx, r)
	case *pb.CompactionRequest:
		return kv.Compact(ctx, r)
	case *streamed:
		return e.stream(ctx, kv, r.RangeRequest)
	case *pb.LeaseGrantRequest:
		return lease.LeaseGrant(ctx, r)
	case *pb.LeaseRevokeRequest:
		return lease.LeaseRevoke(ctx, r)
	case *pb.LeaseTimeToLiveRequest:
		return lease.LeaseTimeToLive(ctx, r)
	case *pb.LeaseLeasesRequest:
		return lease.LeaseLeases(ctx, r)
	case *pb.LeaseKeepAliveRequest:
		return e.keepAlive(ctx, lease, r)
	case *pb.HashKVRequest:
		return maintenance.HashKV(ctx, r)
	case *pb.AlarmRequest:
		return maintenance.Alarm(ctx, r)
	case *pb.DefragmentRequest:
		return maintenance.Defragment(ctx, r)
	case *pb.MoveLeaderRequest:
		return maintenance.MoveLeader(ctx, r)
	case *pb.DowngradeRequest:
		return maintenance.Downgrade(ctx, r)
	case *pb.AuthStatusRequest:
		return pb.NewAuthClient(e.connection).AuthStatus(ctx, r)
	case *pb.AuthenticateRequest:
		return pb.NewAuthClient(e.connection).Authenticate(ctx, r)
	case *pb.MemberAddRequest:
		return pb.NewClusterClient(e.connection).MemberAdd(ctx, r)
	}
	return e.callAuth(ctx, request)
}

// streamed is a range that is asked for as a stream.
type streamed struct{ *pb.RangeRequest }

func (e *endpoint) stream(
	ctx context.Context, kv pb.KVClient, r *pb.RangeRequest,
) (proto.Message, error) {
	stream, err := kv.RangeStream(ctx, r)
	if err != nil {
		return nil, err
	}
	all := &pb.RangeResponse{}
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		proto.Merge(all, chunk.RangeResponse)
	}
}

func (e *endpoint) keepAlive(
	ctx context.Context, lease pb.LeaseClient, r *pb.LeaseKeepAliveRequest,
) (proto.Message, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := lease.LeaseKeepAlive(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(r); err != nil {
		return nil, err
	}
	return stream.Recv()
}

// both is a real etcd and ours, which are asked the same.
type both struct {
	t          testing.TB
	etcd, ours *endpoint
	// revision and compacted are the store's, and done is how many requests were made.
	revision, compacted int64
	done                int
	// answers counts the answers and the errors, by the kind of request.
	answers map[string]int
}

func newBoth(t testing.TB) *both {
	return newBothWith(t, func(s *served) *endpoint { return connect(t, s.address) })
}

// newBothWith is newBoth with ours reached in some way.
func newBothWith(t testing.TB, reach func(*served) *endpoint) *both {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	return &both{t: t, etcd: connect(t, etcd.Endpoints()[0]), ours: reach(serve(t, nil)),
		revision: 1, answers: map[string]int{}}
}

// ask asks both, and fails the test if the answers differ.
func (b *both) ask(request proto.Message) (proto.Message, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	want, wantErr := b.etcd.call(ctx, request)
	got, gotErr := b.ours.call(ctx, request)
	b.done++
	if b.answers == nil {
		b.answers = map[string]int{}
	}
	b.answers[fmt.Sprintf("%T %v", request, status.Code(wantErr))]++
	b.compare(request, want, wantErr, got, gotErr)
	b.follow(request, want, wantErr)
	return want, wantErr
}

func (b *both) compare(
	request, want proto.Message, wantErr error, got proto.Message, gotErr error,
) {
	b.t.Helper()
	w, g := status.Convert(wantErr), status.Convert(gotErr)
	if w.Code() != g.Code() || w.Message() != g.Message() {
		b.t.Fatalf("request %d, %s\netcd: %v %q\nours: %v %q\n%s", b.done, describe(request), w.Code(),
			w.Message(), g.Code(), g.Message(), describe(got))
	}
	if wantErr != nil {
		return
	}
	want, got = proto.Clone(want), proto.Clone(got)
	normalize(request, want)
	normalize(request, got)
	level(want, got)
	if !proto.Equal(want, got) {
		b.t.Fatalf("request %d, %s\netcd: %s\nours: %s", b.done, describe(request), describe(want),
			describe(got))
	}
}

func describe(m proto.Message) string {
	if m == nil {
		return "no answer"
	}
	if s, ok := m.(*streamed); ok {
		return "stream " + describe(s.RangeRequest)
	}
	text := string(m.ProtoReflect().Descriptor().Name()) + " {" +
		prototext.MarshalOptions{}.Format(m) + "}"
	return text[:min(len(text), 4000)]
}

// normalize removes what may differ: the ids of cluster and members, the term, and orders that etcd
// leaves open.
func normalize(request, answer proto.Message) {
	if h, ok := answer.(interface{ GetHeader() *pb.ResponseHeader }); ok && h.GetHeader() != nil {
		h.GetHeader().ClusterId, h.GetHeader().MemberId, h.GetHeader().RaftTerm = 0, 0, 0
	}
	switch a := answer.(type) {
	case *pb.RangeResponse:
		switch r := request.(type) {
		case *pb.RangeRequest:
			withoutLeases(r, a)
		case *streamed:
			withoutLeases(r.RangeRequest, a)
		}
	case *pb.TxnResponse:
		withoutLeasesInTxn(request.(*pb.TxnRequest), a)
	case *pb.LeaseTimeToLiveResponse:
		slices.SortFunc(a.Keys, slices.Compare)
	case *pb.AlarmResponse:
		slices.SortFunc(a.Alarms, func(x, y *pb.AlarmMember) int {
			return cmp.Or(cmp.Compare(x.MemberID, y.MemberID), cmp.Compare(x.Alarm, y.Alarm))
		})
	case *pb.LeaseGrantResponse:
		if request.(*pb.LeaseGrantRequest).ID == 0 {
			a.ID = 0
		}
	case *pb.HashKVResponse:
		// etcd may tell what it kept of before a compaction. The sums of an empty store are the same.
		if a.CompactRevision = 0; a.Header.GetRevision() > 1 && a.Hash != 0 {
			a.Hash = 1
		}
	case *pb.DowngradeResponse:
		a.Version = ""
	}
}

// withoutLeases: of keys only, etcd 3.6 tells the leases and 3.7 does not.
func withoutLeases(r *pb.RangeRequest, a *pb.RangeResponse) {
	if r.KeysOnly {
		for _, kv := range a.Kvs {
			kv.Lease = 0
		}
	}
}

func withoutLeasesInTxn(r *pb.TxnRequest, a *pb.TxnResponse) {
	ops := r.Failure
	if a.Succeeded {
		ops = r.Success
	}
	for i, op := range ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			withoutLeases(r.RequestRange, a.Responses[i].GetResponseRange())
		case *pb.RequestOp_RequestTxn:
			withoutLeasesInTxn(r.RequestTxn, a.Responses[i].GetResponseTxn())
		}
	}
}

// level makes times left equal that are nearly so.
func level(want, got proto.Message) {
	w, ok := want.(*pb.LeaseTimeToLiveResponse)
	if !ok {
		return
	}
	if g := got.(*pb.LeaseTimeToLiveResponse); g.TTL >= w.TTL-3 && g.TTL <= w.TTL+3 && w.TTL > 0 {
		g.TTL = w.TTL
	}
}

// follow keeps what later requests go by.
func (b *both) follow(request, answer proto.Message, err error) {
	if err != nil {
		return
	}
	if h, ok := answer.(interface{ GetHeader() *pb.ResponseHeader }); ok {
		b.revision = max(b.revision, h.GetHeader().GetRevision())
	}
	if c, ok := request.(*pb.CompactionRequest); ok {
		b.compacted = max(b.compacted, c.Revision)
	}
}
