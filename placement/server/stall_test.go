package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A receiver of the table that does not read is cut off, and counted; one that reads slowly is not,
// and neither is one for which there is nothing.
func TestStreamsWithoutAReaderAreCutOff(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "a")
		defer stop()
		// Much more than a connection takes without a reader.
		create(t, c, client, hash("large", 4096, 1))
		m := c.members[0]
		const window = 64 << 10
		conn, err := grpc.NewClient("passthrough:///"+m.address,
			grpc.WithContextDialer(c.network.Dialer("deaf")),
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		deaf, err := clusterpb.NewCoreClient(conn).WatchMetadata(ctx,
			&clusterpb.WatchMetadataRequest{Cluster: testCluster})
		if err != nil {
			t.Fatal(err)
		}
		deafToo, err := clusterpb.NewClusterClient(conn).WatchTable(ctx, &clusterpb.WatchTableRequest{})
		if err != nil {
			t.Fatal(err)
		}
		slow, idle := newPicture(), newPicture()
		for _, p := range []struct {
			*picture
			pause time.Duration
		}{{slow, 20 * time.Second}, {idle, 0}} {
			reader := c.client("reader")
			go func() {
				_ = reader.Watch(ctx, 0, func(u *clusterpb.TableUpdate) error {
					time.Sleep(p.pause)
					return p.take(u)
				})
			}()
		}
		synctest.Wait()
		if n := counted(t, m.server.table.Cut); n != 0 {
			t.Fatalf("%v streams were cut off at once", n)
		}
		time.Sleep(10 * table.SendTimeout)
		synctest.Wait()
		if n := counted(t, m.server.table.Cut); n != 1 {
			t.Errorf("%v streams to nodes were cut off; one does not read", n)
		}
		for _, stream := range []grpc.ClientStream{deaf, deafToo} {
			err := error(nil)
			for err == nil {
				err = stream.RecvMsg(&clusterpb.TableUpdate{})
			}
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("the stream that was not read: %v", err)
			}
		}
		for name, p := range map[string]*picture{"one that reads slowly": slow,
			"one that waits": idle} {
			p.mu.Lock()
			if !p.complete || p.updates == 0 {
				t.Errorf("%s has %d updates, complete %v", name, p.updates, p.complete)
			}
			p.mu.Unlock()
		}
	})
}

func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}
