package forward

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
)

// endless is a member's stream that has always another message.
type endless struct {
	grpc.ClientStream
	read int
}

// RecvMsg implements grpc.ClientStream.
func (e *endless) RecvMsg(any) error {
	e.read++
	return nil
}

// CloseSend implements grpc.ClientStream.
func (*endless) CloseSend() error { return nil }

// slow is the stream of a client whose transport takes a message over when taken says so.
type slow struct {
	grpc.ServerStream
	ctx   context.Context
	taken chan error
}

// Context implements grpc.ServerStream.
func (s slow) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s slow) SendMsg(any) error { return <-s.taken }

// RecvMsg implements grpc.ServerStream.
func (s slow) RecvMsg(any) error { return io.EOF }

// A message of a member is read when the client's transport has taken over the one before.
func TestOneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Config{Answers: limit.NewResponseBudget(512 << 20)})
		m := methodOf(pb.Watch_ServiceDesc.ServiceName, "Watch", 0)
		member, client := &endless{}, slow{ctx: t.Context(), taken: make(chan error)}
		ended := make(chan error, 1)
		go func() {
			r := &relay{f: f, method: m, description: pb.Watch_ServiceDesc.Streams[0], client: client,
				member: member, end: func() {}}
			ended <- r.pass(t.Context(), func() {})
		}()
		for n := 1; n <= 3; n++ {
			synctest.Wait()
			if member.read != n {
				t.Fatalf("%d messages were read, and %d taken", member.read, n-1)
			}
			if n < 3 {
				client.taken <- nil
			}
		}
		gone := status.Error(codes.Canceled, "the client is gone")
		client.taken <- gone
		if err := <-ended; !errors.Is(err, gone) {
			t.Error(err)
		}
		f.Close()
	})
}

// What may have been executed is not done again; what was not sent, was refused, or only reads is.
func TestFates(t *testing.T) {
	put := methodOf(pb.KV_ServiceDesc.ServiceName, "Put", 1)
	get := methodOf(pb.KV_ServiceDesc.ServiceName, "Range", 0)
	broken := status.Error(codes.Unavailable, "error reading from server: EOF")
	refused := metadata.Pairs(refusedField, "1")
	for _, c := range []struct {
		name    string
		of      *method
		request proto.Message
		err     error
		trailer metadata.MD
		want    fate
	}{
		{"an answer", put, nil, nil, nil, answered},
		{"a write when the connection broke", put, nil, broken, nil, answered},
		{"a read when the connection broke", get, nil, broken, nil, notDone},
		{"a write at a server that does not serve", put, nil, broken, refused, notDone},
		{"a write at a learner", put, nil, rpctypes.ErrGRPCNotSupportedForLearner, nil, notDone},
		{"a write that a stopping server has not begun", put, nil,
			status.Error(codes.Unavailable, drained), nil, notDone},
		{"a write that timed out", put, nil, rpctypes.ErrGRPCTimeout, nil, answered},
		{"a read without a leader", get, nil, rpctypes.ErrGRPCNoLeader, nil, answered},
		{"a read that is not permitted", get, nil, rpctypes.ErrGRPCPermissionDenied, nil, answered},
		{"the clock when the connection broke", of(&coordpb.Clock_ServiceDesc, "Read"), nil, broken,
			nil, notDone},
		{"the state of an import when the connection broke",
			of(&coordpb.Import_ServiceDesc, "State"), nil, broken, nil, notDone},
		{"the alarms when the connection broke", of(&pb.Maintenance_ServiceDesc, "Alarm"),
			&pb.AlarmRequest{}, broken, nil, notDone},
		{"an alarm that is raised when the connection broke",
			of(&pb.Maintenance_ServiceDesc, "Alarm"),
			&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE}, broken, nil, answered},
		{"a transaction of reads when the connection broke", of(&pb.KV_ServiceDesc, "Txn"),
			&pb.TxnRequest{Success: []*pb.RequestOp{reading, within(reading)}}, broken, nil, notDone},
		{"a transaction with a write when the connection broke", of(&pb.KV_ServiceDesc, "Txn"),
			&pb.TxnRequest{Failure: []*pb.RequestOp{reading, within(writing)}}, broken, nil, answered},
	} {
		if got := fateOf(changesNothing(c.of, c.request), c.err, c.trailer); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// etcd's client repeats a call whose error says that a context has ended. Calls that may have
// changed something get no such error.
func TestEndedCallsAreNotRepeated(t *testing.T) {
	put := methodOf(pb.KV_ServiceDesc.ServiceName, "Put", 1)
	get := methodOf(pb.KV_ServiceDesc.ServiceName, "Range", 0)
	for _, ended := range []error{context.Canceled, context.DeadlineExceeded} {
		ended = status.FromContextError(ended).Err()
		if err := unrepeated(put, nil, ended); !errors.Is(err, rpctypes.ErrGRPCTimeout) {
			t.Errorf("a write, %v: %v", ended, err)
		}
		if err := unrepeated(get, nil, ended); !errors.Is(err, ended) {
			t.Errorf("a read, %v: %v", ended, err)
		}
	}
	refused := rpctypes.ErrGRPCPermissionDenied
	if err := unrepeated(put, nil, refused); !errors.Is(err, refused) {
		t.Errorf("a refused write: %v", err)
	}
}

// Each method is among those that change nothing, or it is known to change something.
func TestMethodsThatChangeNothing(t *testing.T) {
	changing := map[string]bool{}
	for _, name := range []string{"etcdserverpb.KV/Put", "etcdserverpb.KV/DeleteRange",
		"etcdserverpb.KV/Txn", "etcdserverpb.KV/Compact", "etcdserverpb.Lease/LeaseGrant",
		"etcdserverpb.Lease/LeaseRevoke", "etcdserverpb.Cluster/MemberAdd",
		"etcdserverpb.Cluster/MemberRemove", "etcdserverpb.Cluster/MemberUpdate",
		"etcdserverpb.Cluster/MemberPromote", "etcdserverpb.Maintenance/Alarm",
		"etcdserverpb.Maintenance/Defragment", "etcdserverpb.Maintenance/MoveLeader",
		"etcdserverpb.Maintenance/Downgrade", "etcdserverpb.Auth/AuthEnable",
		"etcdserverpb.Auth/AuthDisable", "etcdserverpb.Auth/UserAdd",
		"etcdserverpb.Auth/UserDelete", "etcdserverpb.Auth/UserChangePassword",
		"etcdserverpb.Auth/UserGrantRole", "etcdserverpb.Auth/UserRevokeRole",
		"etcdserverpb.Auth/RoleAdd", "etcdserverpb.Auth/RoleDelete",
		"etcdserverpb.Auth/RoleGrantPermission", "etcdserverpb.Auth/RoleRevokePermission",
		"v3lockpb.Lock/Lock", "v3lockpb.Lock/Unlock", "v3electionpb.Election/Campaign",
		"v3electionpb.Election/Proclaim", "v3electionpb.Election/Resign",
		"tidemark.coordination.v1.Import/Step", "tidemark.coordination.v1.Import/Auth",
		"tidemark.coordination.v1.Import/Abandon", "tidemark.coordination.v1.Permissions/Grant",
		"tidemark.coordination.v1.Permissions/Revoke",
		"tidemark.coordination.v1.Renewals/RenewAll"} {
		changing["/"+name] = true
	}
	for _, d := range []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Lease_ServiceDesc,
		&pb.Cluster_ServiceDesc, &pb.Maintenance_ServiceDesc, &pb.Auth_ServiceDesc,
		&v3lockpb.Lock_ServiceDesc, &v3electionpb.Election_ServiceDesc,
		&coordpb.Import_ServiceDesc, &coordpb.Permissions_ServiceDesc,
		&coordpb.Renewals_ServiceDesc, &coordpb.Clock_ServiceDesc,
		&grpc_health_v1.Health_ServiceDesc} {
		for i, m := range d.Methods {
			if got := methodOf(d.ServiceName, m.MethodName, i); got.reads == changing[got.full] {
				t.Errorf("%s: changes nothing: %v", got.full, got.reads)
			}
		}
	}
}

// of is a method of a service.
func of(d *grpc.ServiceDesc, name string) *method { return methodOf(d.ServiceName, name, 0) }

var (
	reading = &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{}}}
	writing = &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{}}}
)

// within is a transaction in a transaction.
func within(o *pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
		RequestTxn: &pb.TxnRequest{Success: []*pb.RequestOp{o}}}}
}

// The same member is asked first until it fails, and then the one after it, whatever the one that
// has failed answers late.
func TestOrderOfMembers(t *testing.T) {
	var m members
	all := []string{"a", "b", "c"}
	first := m.order(all, func() uint64 { return 0 })[0]
	m.failed("a", all)
	m.answered("b")
	m.answered("a") // a call that began before
	want := []string{"b", "c", "a"}
	if got := m.order(all, rand.Uint64); !slices.Equal(got, want) || !m.serves("b") {
		t.Errorf("first %s, then %v", first, got)
	}
	m.failed("a", all) // which was not asked first
	if got := m.order(all, rand.Uint64); got[0] != "b" {
		t.Error(got)
	}
	m.failed("b", all)
	if got := m.order(all, rand.Uint64); got[0] != "c" || m.serves("b") {
		t.Error(got)
	}
	if got := m.order([]string{"a", "b"}, rand.Uint64); len(got) != 2 { // c was removed
		t.Error(got)
	}
	if got := m.order(nil, rand.Uint64); got != nil {
		t.Error(got)
	}
}

// A party has a bound of open calls; others have calls beside it.
func TestCallsAreShared(t *testing.T) {
	dialers := 0
	f := New(Config{PerConnection: 100, Answers: limit.NewResponseBudget(512 << 20),
		Refusal: func() error { return coordpb.ErrNotSent },
		Dialer: func() *client.Dialer {
			dialers++
			return client.NewDialer(client.DialerConfig{})
		}})
	var leaves []func()
	for {
		_, leave, err := f.enter("greedy")
		if err != nil {
			if !errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) {
				t.Fatal(err)
			}
			break
		}
		leaves = append(leaves, leave)
	}
	if n := len(leaves); n < openGranted || n > maxOpen*3/4 {
		t.Errorf("one party has %d calls open", n)
	}
	if want := (len(leaves) + 99) / 100; dialers != want {
		t.Errorf("%d calls have %d connections", len(leaves), dialers)
	}
	_, leave, err := f.enter("another")
	if err != nil {
		t.Fatal(err)
	}
	leave()
	for _, leave := range leaves {
		leave()
	}
	if n := len(f.mu.lanes); n != 1 {
		t.Errorf("%d connections are left", n)
	}
	f.Close()
	if _, _, err := f.enter("late"); !coordpb.IsNotSent(err) {
		t.Errorf("after Close: %v", err)
	}
}

// A message that finds no room among the answers of the server waits, if not too much waits
// already; otherwise the stream ends, and its client begins it again.
func TestWaitingMessagesAreBounded(t *testing.T) {
	f := New(Config{Answers: limit.NewResponseBudget(512 << 20), Bytes: 192 << 20,
		Party: func(context.Context) string { return "p" }})
	ctx := limit.Leaves(t.Context())
	message := &pb.SnapshotResponse{Blob: make([]byte, 1<<20)}
	var held []any // what is on its way to clients that do not read
	for range 1 << 10 {
		counted, err := f.config.Answers.Bound(ctx, message, 1<<20)
		if err != nil {
			break
		}
		held = append(held, counted)
	}
	if !f.waiting.Take("p", 32<<20) { // what waits already
		t.Fatal("nothing may wait")
	}
	if _, err := f.count(ctx, message); status.Code(err) != codes.Unavailable {
		t.Errorf("with %d messages on their way: %v", len(held), err)
	}
	f.waiting.Give("p", 32<<20)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := f.count(ctx, message); !errors.Is(err, context.Canceled) {
		t.Errorf("one that may wait: %v", err)
	}
	if n := f.waiting.Held(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	runtime.KeepAlive(held)
	f.Close()
}
