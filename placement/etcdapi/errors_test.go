package etcdapi

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/translate"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// failing is a store whose commands, readings and renewals fail.
type failing struct {
	*lone
	with error
}

func (f *failing) Execute(context.Context, *storepb.Command) (*storepb.Result, error) {
	return nil, f.with
}
func (f *failing) Read(context.Context) (*store.View, error) { return nil, f.with }
func (f *failing) RenewAll(context.Context, []int64) ([]time.Duration, error) {
	return nil, f.with
}
func (f *failing) TimeToLive(context.Context, int64) (store.LeaseInfo, error) {
	return store.LeaseInfo{}, f.with
}

// What the store says is what etcd's clients know.
func TestErrors(t *testing.T) {
	var f *failing
	s := serve(t, func(c *Config) {
		f = &failing{lone: c.Store.(*lone)}
		c.Store = f
	})
	e := connect(t, s.address)
	wrapped := func(err error) error { return fmt.Errorf("command 7: %w", err) }
	for _, c := range []struct {
		of   error
		want error
	}{
		{wrapped(&store.CompactedError{Revision: 9}), rpctypes.ErrGRPCCompacted},
		{wrapped(store.ErrFutureRevision), rpctypes.ErrGRPCFutureRev},
		{wrapped(store.ErrLeaseExists), rpctypes.ErrGRPCLeaseExist},
		{wrapped(store.ErrKeyNotFound), rpctypes.ErrGRPCKeyNotFound},
		{wrapped(store.ErrDuplicateKey), rpctypes.ErrGRPCDuplicateKey},
		{wrapped(store.ErrClosed), rpctypes.ErrGRPCStopped},
		{&store.NotLeaderError{}, rpctypes.ErrGRPCNoLeader},
		{&store.NotLeaderError{Leader: 2, Term: 7}, rpctypes.ErrGRPCLeaderChanged},
		{fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, context.DeadlineExceeded),
			rpctypes.ErrGRPCTimeout},
		{fmt.Errorf("%w: %w", store.ErrOverloaded, context.DeadlineExceeded),
			rpctypes.ErrGRPCRequestTooManyRequests},
		{context.DeadlineExceeded, rpctypes.ErrGRPCTimeout},
		{fmt.Errorf("%w: 10001 keys", store.ErrTooLarge), status.Error(codes.ResourceExhausted,
			"etcdserver: the command is too large: 10001 keys")},
		{fmt.Errorf("%w: no", store.ErrInvalid),
			status.Error(codes.InvalidArgument, "etcdserver: the command is malformed: no")},
		{wrapped(rpctypes.ErrGRPCUnhealthy), rpctypes.ErrGRPCUnhealthy},
	} {
		f.with = c.of
		for _, request := range []proto.Message{
			&pb.PutRequest{Key: []byte("a")}, &pb.DeleteRangeRequest{Key: []byte("a")},
			&pb.CompactionRequest{Revision: 1}, &pb.LeaseGrantRequest{ID: 5},
			&pb.LeaseRevokeRequest{ID: 5}, &pb.RangeRequest{Key: []byte("a")},
			&streamed{&pb.RangeRequest{Key: []byte("a")}}, &pb.TxnRequest{Compare: []*pb.Compare{{
				Key: []byte("a")}}, Success: []*pb.RequestOp{putOp("a", "")}},
			&pb.LeaseKeepAliveRequest{ID: 5}, &pb.LeaseTimeToLiveRequest{ID: 5},
		} {
			_, err := e.call(t.Context(), request)
			if got, want := status.Convert(err), status.Convert(c.want); got.Code() != want.Code() ||
				got.Message() != want.Message() {
				t.Errorf("%v, on %s: %v, want %v", c.of, describe(request), err, c.want)
			}
		}
	}
	// What a reading says that cannot be told from others is taken for the leader's absence.
	f.with = errors.New("no quorum")
	if _, err := e.call(t.Context(), &pb.RangeRequest{Key: []byte("a")}); !errors.Is(err,
		rpctypes.ErrGRPCLeaderChanged) {
		t.Errorf("a reading that is not confirmed: %v", err)
	}
	s.lone.setLeads(t, false)
	if _, err := e.call(t.Context(), &pb.RangeRequest{Key: []byte("a")}); !errors.Is(err,
		rpctypes.ErrGRPCNoLeader) {
		t.Errorf("a reading without a leader: %v", err)
	}
	stale := &pb.RangeRequest{Key: []byte("a"), Serializable: true}
	if _, err := e.call(t.Context(), stale); err != nil {
		t.Errorf("a serializable reading without a leader: %v", err)
	}
	// The call of a client ends when this server closes, too. etcd's client repeats every call whose
	// error says that a context has ended, so the error of a command that may take effect does not.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), -1)
	defer cancel()
	for _, ctx := range []context.Context{ended, late} {
		unknown := fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, ctx.Err())
		if err := translate.Error(ctx, unknown); !errors.Is(err, rpctypes.ErrGRPCTimeout) {
			t.Errorf("a command with an unknown outcome, %v: %v", ctx.Err(), err)
		}
		if err := translate.ChangeError(ctx, ctx.Err()); !errors.Is(err, rpctypes.ErrGRPCTimeout) {
			t.Errorf("a change with an unknown outcome, %v: %v", ctx.Err(), err)
		}
		if err := translate.Error(ctx, ctx.Err()); status.Code(err) !=
			status.FromContextError(ctx.Err()).Code() {
			t.Errorf("a reading, %v: %v", ctx.Err(), err)
		}
	}
}

// Changes of the members that the server does not do are Unimplemented.
func TestUnsupported(t *testing.T) {
	s := serve(t, nil)
	ctx := t.Context()
	_, add := s.MemberAdd(ctx, []string{"http://127.0.0.1:1"})
	_, learner := s.MemberAddAsLearner(ctx, []string{"http://127.0.0.1:1"})
	_, remove := s.MemberRemove(ctx, 7)
	_, update := s.MemberUpdate(ctx, 7, []string{"http://127.0.0.1:1"})
	_, promote := s.MemberPromote(ctx, 7)
	_, move := s.MoveLeader(ctx, 7)
	for i, err := range []error{add, learner, remove, update, promote, move} {
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("call %d: %v", i, err)
		}
	}
}

// A write that was not proposed, since there was no leader in the client's time, says so before
// that time is over.
func TestWriteWithoutALeader(t *testing.T) {
	s := serve(t, nil)
	s.lone.setLeads(t, false)
	for _, limit := range []time.Duration{300 * time.Millisecond, 2 * time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := s.Put(ctx, "a", "b")
		cancel()
		if !errors.Is(err, rpctypes.ErrNoLeader) {
			t.Errorf("within %s: %v", limit, err)
		}
	}
}

// A client that demands a leader is refused without one, and its streams end when there has been
// none for a while.
func TestRequireLeader(t *testing.T) {
	s := serve(t, func(c *Config) { c.LeaderGrace = 20 * time.Millisecond })
	demand := clientv3.WithRequireLeader(t.Context())
	e := connect(t, s.address)
	stream, err := pb.NewLeaseClient(e.connection).LeaseKeepAlive(demand)
	if err != nil {
		t.Fatal(err)
	}
	undemanding, err := pb.NewLeaseClient(e.connection).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []pb.Lease_LeaseKeepAliveClient{stream, undemanding} {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 7}); err != nil {
			t.Fatal(err)
		}
		if answer, err := stream.Recv(); err != nil || answer.TTL != 0 || answer.ID != 7 {
			t.Fatalf("%v, %v", answer, err)
		}
	}
	s.lone.setLeads(t, false)
	if _, err := stream.Recv(); !errors.Is(err, rpctypes.ErrGRPCNoLeader) {
		t.Errorf("a stream that demands a leader ended with %v", err)
	}
	stale := &pb.RangeRequest{Key: []byte("a"), Serializable: true}
	if _, err := e.call(demand, stale); !errors.Is(err, rpctypes.ErrGRPCNoLeader) {
		t.Errorf("a reading that demands a leader: %v", err)
	}
	if _, err := e.call(demand, &pb.LeaseKeepAliveRequest{ID: 7}); !errors.Is(err,
		rpctypes.ErrGRPCNoLeader) {
		t.Errorf("a new stream that demands a leader: %v", err)
	}
	s.lone.setLeads(t, true)
	if err := undemanding.Send(&pb.LeaseKeepAliveRequest{ID: 8}); err != nil {
		t.Fatal(err)
	}
	if answer, err := undemanding.Recv(); err != nil || answer.ID != 8 {
		t.Errorf("the other stream: %v, %v", answer, err)
	}
	if _, err := e.call(demand, &pb.RangeRequest{Key: []byte("a")}); err != nil {
		t.Errorf("a reading with a leader again: %v", err)
	}
}

// A member without a vote answers what etcd's does.
func TestLearner(t *testing.T) {
	s := serve(t, nil)
	s.cluster.learner.Store(true)
	ctx := t.Context()
	if _, err := s.Get(ctx, "a", clientv3.WithSerializable()); err != nil {
		t.Error(err)
	}
	if status, err := s.Status(ctx, s.address); err != nil || !status.IsLearner {
		t.Errorf("%v, %v", status, err)
	}
	_, get := s.Get(ctx, "a")
	_, put := s.Put(ctx, "a", "")
	_, renew := s.KeepAliveOnce(ctx, 7)
	for _, err := range []error{get, put, renew} {
		if rpctypes.ErrorDesc(err) != rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner) {
			t.Error(err)
		}
	}
}

func TestClientVersion(t *testing.T) {
	s := serve(t, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), rpctypes.MetadataClientAPIVersionKey, "\xff")
	if _, err := connect(t, s.address).call(ctx, &pb.RangeRequest{Key: []byte("a")}); err == nil {
		t.Error("a client's version that is no text was accepted")
	}
}

// The limits can be set.
func TestLimits(t *testing.T) {
	s := serve(t, func(c *Config) { c.MaxOperations, c.MaxRequestBytes = 2, 1000 })
	put := func(n int) error {
		_, err := s.Txn(t.Context()).Then(func() (ops []clientv3.Op) {
			for i := range n {
				ops = append(ops, clientv3.OpPut(fmt.Sprint(i), ""))
			}
			return ops
		}()...).Commit()
		return err
	}
	if err := put(2); err != nil {
		t.Error(err)
	}
	if err := put(3); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), "a", string(make([]byte, 900))); err != nil {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), "a", string(make([]byte, 1000))); !errors.Is(err,
		rpctypes.ErrRequestTooLarge) {
		t.Error(err)
	}
}
