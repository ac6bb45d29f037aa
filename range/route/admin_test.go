package route

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/range/route/identity"
	"github.com/tidemarkdb/tidemark/range/route/lifetime"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/range/route/table"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

type clusterServer struct {
	clusterpb.UnimplementedClusterServer
}

// Examine takes four seconds.
func (clusterServer) Examine(ctx context.Context,
	_ *diagnosispb.ExamineRequest) (*diagnosispb.Examination, error) {
	return &diagnosispb.Examination{}, backoff.Sleep(ctx, 4*time.Second)
}

func (clusterServer) Status(context.Context,
	*clusterpb.StatusRequest) (*clusterpb.StatusResponse, error) {
	return &clusterpb.StatusResponse{}, nil
}

// followsSilent are servers of which one is followed that is silent.
type followsSilent struct{ *follow.Follower }

func (followsSilent) Followed() string { return "silent:1" }

// A caller with little time is answered by the server that is there, though the client has begun to
// follow one that is silent. Once there is a connection, that server is asked first.
func TestShortCallsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		for _, address := range []string{"silent:1", "there:1"} {
			listener, err := network.Listen(address)
			if err != nil {
				t.Fatal(err)
			}
			server := rpc.NewServer(rpc.ServerConfig{})
			clusterpb.RegisterClusterServer(server, clusterServer{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_ = server.Serve(listener) // it ends with Stop
			}()
			defer func() {
				server.Stop()
				<-done
			}()
		}
		network.Cut("client", "silent", memnet.Stall)
		s := &Sender{
			cfg:      Config{Random: rand.Uint64},
			life:     lifetime.New(),
			identity: identity.New(identity.Config{}),
		}
		s.nodes = nodes.New(nodes.Config{Lanes: 1, Random: rand.Uint64,
			Dialer: client.DialerConfig{Dial: network.Dialer("client")}})
		defer s.nodes.Close()
		s.known = table.NewKnown(s.nodes, slog.New(slog.DiscardHandler))
		s.servers = followsSilent{follow.New(follow.Config{
			Endpoints: []string{"silent:1", "there:1"}, Known: s.known, Dialer: s.nodes.Dialer(),
			Random: rand.Uint64})}
		for n := range 2 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err := s.Admin(ctx, func(ctx context.Context, c clusterpb.ClusterClient) error {
				_, err := c.Status(ctx, &clusterpb.StatusRequest{})
				return err
			})
			cancel()
			if err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			if took := time.Since(began); n > 0 && took != 0 {
				t.Errorf("call %d waited for the silent server: %s", n, took)
			}
		}
		// A call that takes long by its nature gets the time if the caller says so.
		for _, patient := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if patient {
				ctx = Patient(ctx, 5*time.Second)
			}
			err := s.Admin(ctx, func(ctx context.Context, c clusterpb.ClusterClient) error {
				_, err := c.Examine(ctx, &diagnosispb.ExamineRequest{})
				return err
			})
			cancel()
			if (err == nil) != patient {
				t.Errorf("patient %v: %v", patient, err)
			}
		}
	})
}
