package rpc

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A client that stands still keeps its calls for as long as with etcd, and loses them after that.
// The client is plain gRPC: the Dialer watches its connections itself.
func TestStalledClient(t *testing.T) {
	for _, test := range []struct {
		stall time.Duration
		lives bool
	}{{15 * time.Second, true}, {25 * time.Second, false}} {
		t.Run(test.stall.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memnet.New()
				dial := mem.Dialer("c")
				addr, _, _ := serveCluster(t, network{mem: mem}, "s:1")
				conn, err := grpc.NewClient("passthrough:///"+addr,
					grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
						return dial(ctx, addr)
					}))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				stream, err := clusterpb.NewClusterClient(conn).WatchTable(t.Context(),
					&clusterpb.WatchTableRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				mem.CutBoth("c", "s", memnet.Stall)
				time.Sleep(test.stall)
				mem.HealAll()
				ended := make(chan error, 1)
				go func() {
					_, err := stream.Recv()
					ended <- err
				}()
				synctest.Wait()
				select {
				case err := <-ended:
					if test.lives {
						t.Errorf("the stream ended: %v", err)
					}
				default:
					if !test.lives {
						t.Error("the stream has not ended")
					}
					conn.Close()
					<-ended
				}
			})
		})
	}
}
