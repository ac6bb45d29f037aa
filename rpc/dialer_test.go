package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// clusterServer answers Status at once, and streams one table update and then nothing until the
// client goes.
type clusterServer struct {
	clusterpb.UnimplementedClusterServer
	calls atomic.Int64
}

func (s *clusterServer) Status(context.Context,
	*clusterpb.StatusRequest) (*clusterpb.StatusResponse, error) {
	s.calls.Add(1)
	return &clusterpb.StatusResponse{Cluster: testCluster, Version: "test"}, nil
}

func (s *clusterServer) WatchTable(_ *clusterpb.WatchTableRequest,
	stream grpc.ServerStreamingServer[clusterpb.TableUpdate]) error {
	if err := stream.Send(&clusterpb.TableUpdate{Revision: 1}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func serveCluster(t testing.TB, n network, addr string) (string, *clusterServer, func()) {
	s := &clusterServer{}
	addr, stop := n.serve(t, addr, func(g *Server) { clusterpb.RegisterClusterServer(g, s) })
	return addr, s, stop
}

func TestDialerTCP(t *testing.T) {
	addr, _, _ := serveCluster(t, network{}, "")
	d := network{}.dialer(t, "")
	conn := mustConn(t, d, addr)
	if mustConn(t, d, addr) != conn {
		t.Fatal("two connections to one address")
	}
	response, err := clusterpb.NewClusterClient(conn).Status(t.Context(), &clusterpb.StatusRequest{})
	if err != nil || response.Cluster != testCluster {
		t.Fatalf("%v, %v", response, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Conn(addr); !errors.Is(err, client.ErrDialerClosed) {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// A unary call and a stream run over memnet in a bubble; a cut is noticed in about two seconds of
// virtual time, by both sides; and after healing calls succeed again.
func TestSilentPeerIsNoticed(t *testing.T) {
	for _, direction := range []string{"both", "there", "back"} {
		t.Run(direction, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := network{mem: memnet.New()}
				n.mem.SetDefaultLatency(5 * time.Millisecond)
				serveCluster(t, n, "s:1")
				d := n.dialer(t, "c")
				client := clusterpb.NewClusterClient(mustConn(t, d, "s:1"))
				if _, err := client.Status(t.Context(), &clusterpb.StatusRequest{}); err != nil {
					t.Fatal(err)
				}
				stream, err := client.WatchTable(t.Context(), &clusterpb.WatchTableRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				switch direction {
				case "both":
					n.mem.CutBoth("c", "s", memnet.Stall)
				case "there":
					n.mem.Cut("c", "s", memnet.Stall)
				case "back":
					n.mem.Cut("s", "c", memnet.Stall)
				}
				start := time.Now()
				if _, err = stream.Recv(); status.Code(err) != codes.Unavailable {
					t.Fatalf("stream ended with %v", err)
				}
				if took := time.Since(start); took < time.Second || took > 4*time.Second {
					t.Fatalf("noticed after %v", took)
				}
				t.Logf("noticed after %v: %v", time.Since(start), err)
				time.Sleep(10 * time.Second)
				n.mem.HealAll()
				start = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := client.Status(ctx, &clusterpb.StatusRequest{},
					grpc.WaitForReady(true)); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start); took > 3*time.Second {
					t.Fatalf("back after %v", took)
				}
			})
		})
	}
}

// A connection on which nothing happens, or on which only the client talks, lives on.
func TestQuietConnectionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		serveCluster(t, n, "s:1")
		d := n.dialer(t, "c")
		conn := mustConn(t, d, "s:1")
		client := clusterpb.NewClusterClient(conn)
		stream, err := client.WatchTable(t.Context(), &clusterpb.WatchTableRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := stream.Recv()
			ended <- err
		}()
		select {
		case err := <-ended:
			t.Fatalf("stream ended: %v", err)
		case <-time.After(time.Hour):
		}
		if state := conn.GetState(); state != connectivity.Ready {
			t.Fatal(state)
		}
		d.Close()
		<-ended
	})
}

// A server that accepts connections and says nothing does not keep a call for longer than its
// context, and is given up.
func TestMuteServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		l, err := n.mem.Listen("s:1")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(io.Discard, c)
					c.Close()
				}()
			}
		}()
		d := n.dialer(t, "c")
		start := time.Now()
		_, err = clusterpb.NewClusterClient(mustConn(t, d, "s:1")).Status(t.Context(),
			&clusterpb.StatusRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Fatalf("gave up after %v", took)
		}
		t.Log(err)
		l.Close()
	})
}

// After a server's restart its clients are back within a second.
func TestReconnectIsFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		_, _, stop := serveCluster(t, n, "s:1")
		client := clusterpb.NewClusterClient(mustConn(t, n.dialer(t, "c"), "s:1"))
		if _, err := client.Status(t.Context(), &clusterpb.StatusRequest{}); err != nil {
			t.Fatal(err)
		}
		stop()
		if _, err := client.Status(t.Context(),
			&clusterpb.StatusRequest{}); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		serveCluster(t, n, "s:1")
		start := time.Now()
		if _, err := client.Status(t.Context(), &clusterpb.StatusRequest{},
			grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Fatalf("back after %v", took)
		}
	})
}

// A dial error is in the error of the call.
func TestDialError(t *testing.T) {
	d := client.NewDialer(client.DialerConfig{Dial: func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("no route to nowhere")
	}})
	defer d.Close()
	_, err := clusterpb.NewClusterClient(mustConn(t, d, "x:1")).Status(t.Context(),
		&clusterpb.StatusRequest{})
	if status.Code(err) != codes.Unavailable || !contains(err, "no route to nowhere") {
		t.Fatal(err)
	}
}

func TestBadAddress(t *testing.T) {
	d := client.NewDialer(client.DialerConfig{})
	defer d.Close()
	for _, addr := range []string{"", "host", "a b:1", "a:1:2", "%41:1", "http://a:1", "a:1/x",
		"ä:1"} {
		if _, err := d.Conn(addr); !contains(err, "host:port") {
			t.Errorf("%q: %v", addr, err)
		}
	}
	dialled := make(chan string, 10)
	d = client.NewDialer(client.DialerConfig{Dial: func(_ context.Context, addr string) (net.Conn,
		error) {
		dialled <- addr
		return nil, errors.New("enough")
	}})
	defer d.Close()
	for _, addr := range []string{"[::1]:7400", "127.0.0.1:7400", "node-1.example:7400", "n1:1"} {
		_, _ = clusterpb.NewClusterClient(mustConn(t, d, addr)).Status(t.Context(),
			&clusterpb.StatusRequest{})
		if got := <-dialled; got != addr {
			t.Errorf("%q was dialled as %q", addr, got)
		}
	}
}
