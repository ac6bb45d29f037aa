package forward

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// inTime runs a test in virtual time, with a Forwarder to members of which the first is asked
// first, and a client of a server that passes calls on.
func inTime(t *testing.T, test func(*testing.T, *Forwarder, *grpc.ClientConn),
	members ...*scripted) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		listen := func(host string, register func(grpc.ServiceRegistrar)) string {
			l, err := network.Listen(host + ":1")
			if err != nil {
				t.Fatal(err)
			}
			return serveOn(t, l, rpc.ServerConfig{}, register)
		}
		var at []string
		for i, m := range members {
			at = append(at, listen(fmt.Sprintf("member%d", i), m.register))
		}
		f := passesOn(t, 512<<20, 0, at...)
		f.config.Dialer = func() *client.Dialer {
			return client.NewDialer(client.DialerConfig{Dial: network.Dialer("node")})
		}
		node := listen("node", func(r grpc.ServiceRegistrar) {
			for _, d := range []*grpc.ServiceDesc{&pb.KV_ServiceDesc, &pb.Watch_ServiceDesc,
				&pb.Maintenance_ServiceDesc} {
				r.RegisterService(f.Describe(d), nil)
			}
		})
		conn, err := grpc.NewClient("passthrough:///"+node,
			grpc.WithContextDialer(network.Dialer("client")),
			grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		test(t, f, conn)
	})
}

// never answers a call.
func never(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A member at which calls wait in vain for a second is left, be it one call or several short ones.
func TestSilentMemberIsLeft(t *testing.T) {
	for _, limit := range []time.Duration{5 * time.Second, 300 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
				began := time.Now()
				for failures := 0; ; failures++ {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					_, err := pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte("k")})
					cancel()
					if err == nil {
						break
					}
					if code := status.Code(err); code != codes.DeadlineExceeded {
						t.Fatal(err)
					}
					if failures > 0 && time.Since(began) > silentMost+limit {
						t.Fatalf("%d calls have failed in %s", failures, time.Since(began))
					}
				}
			}, &scripted{put: never, leader: 1},
				&scripted{put: func(context.Context) error { return nil }, leader: 1})
		})
	}
}

// A call that waits for other clients says nothing of a member that answers calls meanwhile.
func TestCallsThatWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := []string{"a", "b"}
		first := func() uint64 { return 0 }
		lock := &method{waits: true}
		gone := status.Error(codes.Canceled, "the client is gone")
		var m members
		began := time.Now()
		m.order(all, first)
		time.Sleep(time.Minute) // virtual
		m.ended("a", all, &method{}, time.Now(), nil)
		m.ended("a", all, lock, began, gone)
		if got := m.order(all, first); !slices.Equal(got, all) {
			t.Errorf("a member that answers is left: %v", got)
		}
		began = time.Now().Add(1)
		time.Sleep(time.Minute)
		m.ended("a", all, lock, began, gone)
		if got := m.order(all, first); got[0] != "b" {
			t.Errorf("a member that does not answer: %v", got)
		}
	})
}

// A stream is opened at a member that knows of a leader, and at any that serves if none does. A
// member that ends a stream for want of a leader is left.
func TestStreamsWantALeader(t *testing.T) {
	watch := func(t *testing.T, conn *grpc.ClientConn) (pb.Watch_WatchClient, int64) {
		t.Helper()
		stream, err := pb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(create(0)); err != nil {
			t.Fatal(err)
		}
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return stream, r.WatchId
	}
	var lost chan struct{}
	member := func(id int64, leader uint64) *scripted {
		return &scripted{id: uint64(id), leader: leader, watch: func(s pb.Watch_WatchServer) error {
			if err := s.Send(&pb.WatchResponse{WatchId: id}); err != nil {
				return err
			}
			select {
			case <-lost:
				return rpctypes.ErrGRPCNoLeader
			case <-s.Context().Done():
				return nil
			}
		}}
	}
	inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
		if _, at := watch(t, conn); at != 2 {
			t.Errorf("the stream is at member %d", at)
		}
	}, member(1, 0), member(2, 2))
	inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
		watch(t, conn)
	}, member(1, 0), member(2, 0))
	inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
		lost = make(chan struct{})
		stream, at := watch(t, conn)
		close(lost)
		if _, err := stream.Recv(); !errors.Is(rpctypes.Error(err), rpctypes.ErrNoLeader) {
			t.Errorf("the stream ends with %v", err)
		}
		lost = make(chan struct{})
		if _, next := watch(t, conn); next == at {
			t.Errorf("the next stream is at member %d again", at)
		}
	}, member(1, 1), member(2, 1))
}

// What only the leader does, and the status by which clients look for the leader, go to the leader.
func TestLeaderIsAsked(t *testing.T) {
	var moved atomic.Int64
	member := func(id, leader uint64) *scripted {
		return &scripted{id: id, leader: leader, move: func() error {
			if id != leader {
				return rpctypes.ErrGRPCNotLeader
			}
			moved.Add(1)
			return nil
		}}
	}
	inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
		api := pb.NewMaintenanceClient(conn)
		if s, err := api.Status(t.Context(), &pb.StatusRequest{}); err != nil ||
			s.Header.MemberId != s.Leader {
			t.Errorf("%v, %v", s, err)
		}
		if _, err := api.MoveLeader(t.Context(), &pb.MoveLeaderRequest{TargetID: 1}); err != nil ||
			moved.Load() != 1 {
			t.Errorf("moved %d times: %v", moved.Load(), err)
		}
		if got := f.members.order(f.config.Members(), f.config.Random)[0]; got != "member0:1" {
			t.Errorf("%s is asked first afterwards", got)
		}
	}, member(1, 3), member(2, 3), member(3, 3))
	inTime(t, func(t *testing.T, f *Forwarder, conn *grpc.ClientConn) {
		api := pb.NewMaintenanceClient(conn)
		if s, err := api.Status(t.Context(), &pb.StatusRequest{}); err != nil || s.Leader != 0 {
			t.Errorf("without a leader: %v, %v", s, err)
		}
		_, err := api.MoveLeader(t.Context(), &pb.MoveLeaderRequest{TargetID: 1})
		if !errors.Is(err, rpctypes.ErrGRPCNotLeader) {
			t.Errorf("without a leader: %v", err)
		}
	}, member(1, 0), member(2, 0))
}

// The health is that of a member that is well, and an alarm is told unless it is excluded.
func TestHealthIsOfAMember(t *testing.T) {
	alarmed := func(_ context.Context, service string) error {
		_, excluded, ok := coordpb.IsHealthOf(service)
		switch {
		case !ok:
			return status.Error(codes.NotFound, "unknown service")
		case !excluded["NOSPACE"]:
			return status.Error(codes.FailedPrecondition, "etcdserver: ALARM NOSPACE")
		}
		return nil
	}
	noLeader := func(context.Context, string) error {
		return status.Error(codes.Unavailable, "etcdserver: RAFT NO LEADER")
	}
	silent := func(ctx context.Context, _ string) error { return never(ctx) }
	old := &scripted{id: 1, leader: 1, get: func(*pb.RangeRequest) (*pb.RangeResponse, error) {
		return &pb.RangeResponse{}, nil
	}}
	excluded := map[string]bool{"NOSPACE": true}
	for _, c := range []struct {
		name     string
		members  []*scripted
		excluded map[string]bool
		want     string
	}{
		{"an alarm", []*scripted{{healthy: alarmed}}, nil, "ALARM NOSPACE"},
		{"an alarm that is excluded", []*scripted{{healthy: alarmed}}, excluded, ""},
		{"a member without a leader", []*scripted{{healthy: noLeader}, {healthy: alarmed}}, excluded,
			""},
		{"no member has a leader", []*scripted{{healthy: noLeader}, {healthy: noLeader}}, excluded,
			"RAFT NO LEADER"},
		{"a silent member", []*scripted{{healthy: silent}, {healthy: alarmed}}, excluded, ""},
		{"a member of an earlier version", []*scripted{old}, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTime(t, func(t *testing.T, f *Forwarder, _ *grpc.ClientConn) {
				f.config.Party = func(context.Context) string { return "p" }
				began, got := time.Now(), ""
				if err := f.Healthy(t.Context(), false, c.excluded); err != nil {
					got = err.Error()
				}
				if took := time.Since(began); got != c.want || took > healthWithin+time.Second {
					t.Errorf("%q after %s, want %q", got, took, c.want)
				}
			}, c.members...)
		})
	}
}
