package coord

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// moving is a core of one member, which moves, and a server beside it that is none: it tells where
// the member is, and passes calls on if it is said to.
type moving struct {
	*testing.T
	network *memnet.Network
	// member is where the member is, and asked is how often the other server was asked for that.
	member atomic.Pointer[string]
	asked  atomic.Int64
	passes atomic.Bool
	stop   func()
}

// moves makes one, and a client of the other server.
func moves(t *testing.T, options ...Option) (*moving, *Client) {
	m := &moving{T: t, network: memnet.New(), stop: func() {}}
	t.Cleanup(func() { m.stop() })
	t.Cleanup(m.serve("data:1", func(s *grpc.Server) {
		pb.RegisterClusterServer(s, &otherServer{m: m})
		pb.RegisterKVServer(s, &otherKeys{m: m})
	}))
	m.moveTo("a:1")
	c, err := Connect(t.Context(), []string{"data:1"}, append(options,
		Dialer(m.network.Dialer("client")))...)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.etcd.Endpoints(); !slices.Equal(got, []string{"http://a:1"}) {
		t.Fatalf("goes on with %v", got)
	}
	return m, c
}

func (m *moving) serve(address string, register func(*grpc.Server)) (stop func()) {
	m.Helper()
	l, err := m.network.Listen(address)
	if err != nil {
		m.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	return func() {
		s.Stop()
		serving.Wait()
	}
}

// moveTo has the member at another address.
func (m *moving) moveTo(address string) {
	m.Helper()
	m.stop()
	m.stop = m.serve(address, func(s *grpc.Server) {
		member := &memberServer{m: m}
		pb.RegisterClusterServer(s, member)
		pb.RegisterKVServer(s, member)
		pb.RegisterLeaseServer(s, member)
	})
	at := "http://" + address
	m.member.Store(&at)
}

// otherServer is no member.
type otherServer struct {
	pb.UnimplementedClusterServer
	m *moving
}

func (s *otherServer) MemberList(
	context.Context, *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	s.m.asked.Add(1)
	return &pb.MemberListResponse{Members: []*pb.Member{{ClientURLs: []string{*s.m.member.Load()}}}},
		nil
}

// otherKeys passes calls on, or reaches no member.
type otherKeys struct {
	pb.UnimplementedKVServer
	m *moving
}

func (s *otherKeys) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	if !s.m.passes.Load() {
		return nil, coordpb.ErrNotSent
	}
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, nil
}

// memberServer has no keys, and leases that live forever.
type memberServer struct {
	pb.UnimplementedClusterServer
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	m *moving
}

func (s *memberServer) MemberList(
	context.Context, *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	return &pb.MemberListResponse{Members: []*pb.Member{{ID: 1,
		ClientURLs: []string{"http://advertised:1"}}}}, nil
}

func (*memberServer) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (*memberServer) LeaseGrant(
	_ context.Context, r *pb.LeaseGrantRequest,
) (*pb.LeaseGrantResponse, error) {
	return &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{}, ID: 7, TTL: r.TTL}, nil
}

func (*memberServer) LeaseRevoke(
	context.Context, *pb.LeaseRevokeRequest,
) (*pb.LeaseRevokeResponse, error) {
	return &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (*memberServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveResponse{Header: &pb.ResponseHeader{}, ID: r.ID,
			TTL: 15}); err != nil {
			return err
		}
	}
}

// in runs a test in virtual time. The monotonic clock is the bubble's.
func in(t *testing.T, test func(*testing.T, Option)) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		test(t, Monotonic(func() int64 { return int64(time.Since(began)) + 1 }))
	})
}

// A client whose members have all moved asks at the address that it was given where they are, and
// asks no more often than every few seconds while nothing answers there.
func TestMembersThatHaveMovedAreFound(t *testing.T) {
	in(t, func(t *testing.T, clock Option) {
		m, c := moves(t, clock, AttemptTimeout(time.Second))
		for _, to := range []string{"b:1", "c:1"} {
			m.moveTo(to)
			began := time.Now()
			soon, cancel := context.WithTimeout(t.Context(), time.Minute)
			if _, err := c.get(soon, "k"); err != nil {
				t.Error(err)
			}
			cancel()
			if took := time.Since(began); took > 2*lookEvery {
				t.Errorf("the member at %s was found after %s", to, took)
			}
		}
		m.stop()
		m.stop = func() {}
		before := m.asked.Load()
		const outage = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), outage)
		defer cancel()
		if _, err := c.get(ctx, "k"); err == nil {
			t.Error("without a server")
		}
		if n := m.asked.Load() - before; n < 2 || n > int64(outage/lookEvery)+1 {
			t.Errorf("asked %d times in %s", n, outage)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A client that reaches no member goes on with the server that passes calls on, when it connects
// and later.
func TestMembersThatCannotBeReached(t *testing.T) {
	for name, how := range map[string]memnet.Mode{"refused": memnet.Break, "silent": memnet.Stall} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, clock Option) {
				m, c := moves(t, clock)
				m.passes.Store(true)
				given := []string{"data:1"}
				works := func(c *Client) {
					t.Helper()
					soon, cancel := context.WithTimeout(t.Context(), 5*lookEvery)
					defer cancel()
					if _, err := c.get(soon, "k"); err != nil {
						t.Error(err)
					}
					if got := c.etcd.Endpoints(); !slices.Equal(got, given) {
						t.Errorf("goes on with %v", got)
					}
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
				m.network.CutBoth("client", "a", how)
				m.network.Drop("client", "a")
				works(c)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				late, err := Connect(ctx, given, clock, Dialer(m.network.Dialer("client")))
				if err != nil {
					t.Fatal(err)
				}
				works(late)
			})
		})
	}
}

// Sessions live on when the members have moved, or cannot be reached any more, though the client
// makes no other call.
func TestSessionsFindMembersThatHaveMoved(t *testing.T) {
	for name, silent := range map[string]bool{"moved": false, "silent": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, clock Option) {
				m, c := moves(t, clock)
				s, err := c.NewSession(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if silent {
					m.network.Isolate("a", memnet.Stall)
				}
				m.moveTo("b:1")
				time.Sleep(3 * s.TTL()) // virtual
				if err := s.Err(); err != nil {
					t.Error(err)
				}
				if got := c.etcd.Endpoints(); !slices.Equal(got, []string{"http://b:1"}) {
					t.Errorf("goes on with %v", got)
				}
				if err := s.Close(t.Context()); err != nil {
					t.Error(err)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Given addresses that have become those of members are used as they were given, also if the member
// answers no client that is not authenticated.
func TestGivenAddressesOfMembersAreUsed(t *testing.T) {
	for name, refusal := range map[string]error{"listed": nil,
		"refused": status.Error(codes.InvalidArgument, "etcdserver: user name is empty")} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, clock Option) {
				m, c := moves(t, clock)
				m.stop()
				m.stop = m.serve("data:2", func(s *grpc.Server) {
					member := &refusingServer{memberServer{m: m}, refusal}
					pb.RegisterClusterServer(s, member)
					pb.RegisterKVServer(s, member)
				})
				c.members.given = []string{"data:2"}
				c.members.asking.Endpoints = c.members.given
				if _, err := c.get(t.Context(), "k"); err != nil {
					t.Fatal(err)
				}
				if got := c.etcd.Endpoints(); !slices.Equal(got, []string{"data:2"}) {
					t.Errorf("goes on with %v", got)
				}
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

type refusingServer struct {
	memberServer
	refusal error
}

func (s *refusingServer) MemberList(
	ctx context.Context, r *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	if s.refusal != nil {
		return nil, s.refusal
	}
	return s.memberServer.MemberList(ctx, r)
}

// Close ends a look that is under way.
func TestCloseEndsTheLookForMembers(t *testing.T) {
	in(t, func(t *testing.T, clock Option) {
		m, c := moves(t, clock)
		m.network.Isolate("data", memnet.Stall)
		m.stop()
		m.stop = func() {}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.get(ctx, "k"); err == nil {
			t.Error("without a server")
		}
		began := time.Now()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("closed after %s", took)
		}
		c.members.look()
		c.members.running.Wait()
		m.network.Rejoin("data")
	})
}
