package etcdapi

import (
	"context"
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3electionpb"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/v3lockpb"
)

// script does calls one by one, and writes down what they are answered.
type script struct {
	*endpoint
	t     testing.TB
	lines []string
}

// told is what comes of a call.
type told struct {
	answer proto.Message
	err    error
}

func (s *script) wrote(what string, r told) {
	s.t.Helper()
	if r.err != nil {
		// Their codes are all Unknown in etcd's, whatever they are in other calls.
		s.lines = append(s.lines, fmt.Sprintf("%s: %s", what, status.Convert(r.err).Message()))
		return
	}
	anonymous(r.answer.ProtoReflect())
	text := prototext.MarshalOptions{}.Format(r.answer)
	s.lines = append(s.lines, fmt.Sprintf("%s: %T %s", what, r.answer, text))
}

func (s *script) do(what string, request proto.Message) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	s.wrote(what, s.ask(ctx, request))
}

func (s *script) ask(ctx context.Context, request proto.Message) (r told) {
	lock := v3lockpb.NewLockClient(s.connection)
	election := v3electionpb.NewElectionClient(s.connection)
	switch q := request.(type) {
	case *v3lockpb.LockRequest:
		r.answer, r.err = lock.Lock(ctx, q)
	case *v3lockpb.UnlockRequest:
		r.answer, r.err = lock.Unlock(ctx, q)
	case *v3electionpb.CampaignRequest:
		r.answer, r.err = election.Campaign(ctx, q)
	case *v3electionpb.ProclaimRequest:
		r.answer, r.err = election.Proclaim(ctx, q)
	case *v3electionpb.LeaderRequest:
		r.answer, r.err = election.Leader(ctx, q)
	case *v3electionpb.ResignRequest:
		r.answer, r.err = election.Resign(ctx, q)
	default:
		r.answer, r.err = s.call(ctx, request)
	}
	return r
}

// begin begins a call, which is to wait until something else happens.
func (s *script) begin(request proto.Message) (end func() told, cancel context.CancelFunc) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	done := make(chan told, 1)
	go func() { done <- s.ask(ctx, request) }()
	s.t.Cleanup(cancel)
	return func() told { return <-done }, cancel
}

// awaitKeys waits until so many keys have a prefix.
func (s *script) awaitKeys(prefix string, want int64) {
	s.t.Helper()
	end := []byte(clientv3.GetPrefixRangeEnd(prefix))
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		r := s.ask(s.t.Context(), &pb.RangeRequest{Key: []byte(prefix), RangeEnd: end, CountOnly: true})
		if r.err != nil {
			s.t.Fatal(r.err)
		}
		if r.answer.(*pb.RangeResponse).Count == want {
			return
		}
		if time.Since(began) > 20*time.Second {
			s.t.Fatalf("there never were %d keys below %s", want, prefix)
		}
	}
}

func (s *script) grant(leases ...int64) {
	for _, id := range leases {
		s.do("grant", &pb.LeaseGrantRequest{ID: id, TTL: 100})
	}
}

func lockOf(name string, lease int64) *v3lockpb.LockRequest {
	return &v3lockpb.LockRequest{Name: []byte(name), Lease: lease}
}

func (s *script) locks() {
	s.grant(7, 0x1f, 9, 11)
	s.do("free", lockOf("l", 7))
	s.do("its own again", lockOf("l", 7))
	second, _ := s.begin(lockOf("l", 0x1f))
	s.awaitKeys("l/", 2)
	third, _ := s.begin(lockOf("l", 9))
	s.awaitKeys("l/", 3)
	fourth, give := s.begin(lockOf("l", 11))
	s.awaitKeys("l/", 4)
	give()
	if r := fourth(); status.Code(r.err) != codes.Canceled {
		s.t.Error(r)
	}
	s.awaitKeys("l/", 3) // its place is given back
	s.do("unlock", &v3lockpb.UnlockRequest{Key: []byte("l/7")})
	s.wrote("second", second())
	s.do("revoke", &pb.LeaseRevokeRequest{ID: 0x1f})
	s.wrote("third", third())
	s.do("unlock", &v3lockpb.UnlockRequest{Key: []byte("l/9")})
	s.do("unlock again", &v3lockpb.UnlockRequest{Key: []byte("l/9")})
	s.do("no key", &v3lockpb.UnlockRequest{})
	s.do("no name", lockOf("", 9))
	s.do("no such lease", lockOf("l", 12345))
	s.do("no such lease", lockOf("l", -3))
	s.do("keys", &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
}

func (s *script) elections() {
	s.grant(7, 8, 9)
	campaign := func(lease int64, value string) *v3electionpb.CampaignRequest {
		return &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease, Value: []byte(value)}
	}
	question := &v3electionpb.LeaderRequest{Name: []byte("e")}
	s.do("none", question)
	first := s.ask(s.t.Context(), campaign(7, "a"))
	s.wrote("first", first)
	key := first.answer.(*v3electionpb.CampaignResponse).Leader
	s.do("leader", question)
	second, _ := s.begin(campaign(8, "b"))
	s.awaitKeys("e/", 2)
	third, cancel := s.begin(campaign(9, "c"))
	s.awaitKeys("e/", 3)
	cancel()
	if r := third(); status.Code(r.err) != codes.Canceled {
		s.t.Error(r)
	}
	s.awaitKeys("e/", 2)
	s.do("again", campaign(7, "a"))
	s.do("with another value", campaign(7, "x"))
	s.do("proclaim", &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("y")})
	s.do("leader", question)
	s.do("no key", &v3electionpb.ProclaimRequest{})
	s.do("no key", &v3electionpb.ResignRequest{})
	s.do("resign", &v3electionpb.ResignRequest{Leader: key})
	s.wrote("second", second())
	s.do("resign again", &v3electionpb.ResignRequest{Leader: key})
	s.do("proclaim", &v3electionpb.ProclaimRequest{Leader: key, Value: []byte("z")})
	s.do("leader", question)
	s.do("no name", &v3electionpb.CampaignRequest{Lease: 7})
	s.do("no such lease", campaign(12345, "n"))
}

// Locks and elections answer what etcd's do: the same keys, revisions and errors.
func TestRecipesLikeEtcd(t *testing.T) {
	for name, run := range map[string]func(*script){"locks": (*script).locks,
		"elections": (*script).elections} {
		t.Run(name, func(t *testing.T) {
			etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
			theirs := &script{t: t, endpoint: connect(t, etcd.Endpoints()[0])}
			ours := &script{t: t, endpoint: connect(t, serve(t, nil).address)}
			run(theirs)
			run(ours)
			for i, want := range theirs.lines {
				if i >= len(ours.lines) || ours.lines[i] != want {
					t.Errorf("etcd: %s\nours: %s", want, ours.lines[i])
				}
			}
		})
	}
}

// A call that waits hears at once that its place is lost, and not only when its turn comes.
func TestLockOfLostPlace(t *testing.T) {
	s := &script{t: t, endpoint: connect(t, serve(t, nil).address)}
	s.grant(7, 8)
	s.do("first", lockOf("l", 7))
	waiting, _ := s.begin(lockOf("l", 8))
	s.awaitKeys("l/", 2)
	s.do("revoke", &pb.LeaseRevokeRequest{ID: 8})
	if r := waiting(); r.err == nil ||
		status.Convert(r.err).Message() != "mutex: session is expired" {
		t.Errorf("%v", r)
	}
	waiting, _ = s.begin(&v3electionpb.CampaignRequest{Name: []byte("l"), Lease: 0})
	s.awaitKeys("l/", 2)
	leases := s.ask(t.Context(), &pb.LeaseLeasesRequest{}).answer.(*pb.LeaseLeasesResponse)
	for _, l := range leases.Leases {
		if l.ID != 7 {
			s.do("revoke", &pb.LeaseRevokeRequest{ID: l.ID})
		}
	}
	if r := waiting(); status.Code(r.err) != codes.Unknown {
		t.Errorf("%v", r)
	}
}

// A client's own mutexes and those of the service stand in one line.
func TestLockBesideClients(t *testing.T) {
	served := serveWatch(t, nil)
	s := &script{t: t, endpoint: connect(t, served.address)}
	session, err := concurrency.NewSession(served.Client)
	if err != nil {
		t.Fatal(err)
	}
	mutex := concurrency.NewMutex(session, "m")
	if err := mutex.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.grant(7)
	waiting, _ := s.begin(lockOf("m", 7))
	s.awaitKeys("m/", 2)
	if err := mutex.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := waiting(); r.err != nil {
		t.Fatal(r.err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := mutex.Lock(short); status.Code(err) != codes.DeadlineExceeded &&
		err != context.DeadlineExceeded {
		t.Errorf("lock of what is locked: %v", err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

func TestObserve(t *testing.T) {
	s := &script{t: t, endpoint: connect(t, serve(t, nil).address)}
	s.grant(7, 8)
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := v3electionpb.NewElectionClient(s.connection).Observe(ctx,
		&v3electionpb.LeaderRequest{Name: []byte("e")})
	if err != nil {
		t.Fatal(err)
	}
	hears := func(key, value string) {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if string(r.Kv.Key) != key || string(r.Kv.Value) != value || r.Header.Revision == 0 {
			t.Errorf("%v, want %s = %s", r, key, value)
		}
	}
	campaign := func(lease int64, value string) *v3electionpb.LeaderKey {
		r := s.ask(t.Context(), &v3electionpb.CampaignRequest{Name: []byte("e"), Lease: lease,
			Value: []byte(value)})
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.answer.(*v3electionpb.CampaignResponse).Leader
	}
	leader := campaign(7, "a")
	hears("e/7", "a")
	s.do("proclaim", &v3electionpb.ProclaimRequest{Leader: leader, Value: []byte("b")})
	hears("e/7", "b")
	waiting, _ := s.begin(&v3electionpb.CampaignRequest{Name: []byte("e"), Lease: 8,
		Value: []byte("c")})
	s.awaitKeys("e/", 2)
	s.do("resign", &v3electionpb.ResignRequest{Leader: leader})
	hears("e/8", "c")
	if r := waiting(); r.err != nil {
		t.Fatal(r.err)
	}
	s.do("revoke", &pb.LeaseRevokeRequest{ID: 8})
	campaign(7, "d")
	hears("e/7", "d")
	cancel()
	if _, err := stream.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
}

// anonymous takes out of a header what differs from cluster to cluster.
func anonymous(m protoreflect.Message) {
	header := m.Descriptor().Fields().ByName("header")
	if header == nil || !m.Has(header) {
		return
	}
	h := m.Get(header).Message().Interface().(*pb.ResponseHeader)
	h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
}
