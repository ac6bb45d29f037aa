package kvtest_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestClientsAreToldTheClockBound: in a cluster that is configured for clocks that are further
// apart than usual, a client that was told nothing of it finds what was acknowledged before it
// began to read, although the clock by which it reads is behind that by most of the bound.
func TestClientsAreToldTheClockBound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const wide = 4 * bound
		c := six(t, func(_ int, sc *embedded.ServerConfig) { sc.MaxOffset = wide })
		// One replica each: followers would bring a leader's timestamps to the clocks of their
		// nodes.
		things := create(t, c.Client(t), "things", kv.Range([]byte("m")), kv.Replicas(1))
		put(t, things, "a", "before")
		put(t, things, "z", "before")
		fast, slow := serverOf(t, c, partitionOf(t, c, "a")), serverOf(t, c, partitionOf(t, c, "z"))
		if fast == slow {
			t.Fatalf("server %d has both partitions", fast)
		}
		c.Clock(fast).SetOffset(2 * wide / 5)
		c.Clock(slow).SetOffset(-2 * wide / 5)
		time.Sleep(5 * time.Second)

		writer, reader := c.Client(t), c.Client(t)
		ks := reader.Keyspace("things")
		mustHold(t, ks, "z", "before")
		// What it has heard of the fast clock when it connected is long past.
		time.Sleep(5 * time.Second)
		put(t, writer.Keyspace("things"), "a", "acknowledged")
		seesAcknowledged(t, reader, ks)
	})
}

// TestServersSayHowFarAheadTimestampsMayBe: with the kernel's bound the timestamps of commits that
// wait are ahead of the clocks, and that is part of what a server tells its clients.
func TestServersSayHowFarAheadTimestampsMayBe(t *testing.T) {
	for kernel, want := range map[bool]time.Duration{false: bound, true: 2 * bound} {
		bubble(t, func(t *testing.T) {
			c := kvtest.Start(t, kvtest.Options{Nodes: 1, Configure: func(_ int,
				sc *embedded.ServerConfig) {
				sc.MaxOffset, sc.KernelBound = bound, kernel
			}})
			connection, err := grpc.NewClient("passthrough:///"+c.Endpoints()[0],
				grpc.WithContextDialer(c.Dialer("client")),
				grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer connection.Close()
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			table, err := clusterpb.NewClusterClient(connection).WatchTable(ctx,
				&clusterpb.WatchTableRequest{})
			if err != nil {
				t.Fatal(err)
			}
			first, err := table.Recv()
			got := time.Duration(first.GetMaxClockOffsetMicros()) * time.Microsecond
			if err != nil || got != want {
				t.Errorf("kernel's bound %t: told %s, %v, want %s", kernel, got, err, want)
			}
		})
	}
}

// seesAcknowledged begins a View with key z, whose partition a slow node leads, and checks that it
// sees what was acknowledged in key a before.
func seesAcknowledged(t *testing.T, reader *kv.Client, ks *kv.Keyspace) {
	t.Helper()
	saw := ""
	if err := reader.View(t.Context(), func(s *kv.Snapshot) error {
		if _, err := s.Get(t.Context(), ks, []byte("z")); err != nil {
			return err
		}
		p, err := s.Get(t.Context(), ks, []byte("a"))
		saw = string(p.Value)
		return err
	}); err != nil || saw != "acknowledged" {
		t.Errorf("the reader saw %q, %v", saw, err)
	}
}
