package coord

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// importingServer answers as a server does while an import is under way.
type importingServer struct{ pb.UnimplementedKVServer }

func (importingServer) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return nil, status.Error(codes.Unavailable, "etcdserver: an import is under way: wait until it "+
		"has ended, or abandon it, with 7 keys so far")
}

// A client connects to a service into which something is being imported: it may be the one that is
// to go on with that.
func TestConnectDuringAnImport(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, importingServer{})
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	defer running.Wait()
	defer server.Stop()
	c, err := Connect(t.Context(), []string{listener.Addr().String()}, DialTimeout(30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
