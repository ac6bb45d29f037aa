package conn

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A Conn finds a keyspace that the core knows, knows the time of the cluster, and ends its calls
// when it is closed.
func TestConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		fake := fakeserver.Start(t, 3)
		defer fake.Close()
		c, err := New(Config{Route: route.Config{Endpoints: fake.Endpoints(),
			Dial: fake.Dialer("client")}, RequestTimeout: time.Minute, DefaultClockOffset: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Ask(ctx, c, clusterpb.ClusterClient.CreateKeyspace,
			&clusterpb.CreateKeyspaceRequest{Name: "a", ReplicationFactor: 3, Token: 1,
				Partitioning: clusterpb.Partitioning_RANGE}); err != nil {
			t.Fatal(err)
		}
		if ks, err := c.Resolve(ctx, "a"); err != nil || ks.Info.Name != "a" {
			t.Errorf("resolved as %v, %v", ks, err)
		}
		for _, name := range []string{"", "ghost"} {
			if _, err := c.Resolve(ctx, name); !errors.Is(err, route.ErrNoKeyspace) {
				t.Errorf("%q: %v", name, err)
			}
		}
		before := time.Now()
		late, err := c.LateTimestamp(ctx)
		if took := time.Since(before); err != nil || took < c.LateWait() {
			t.Errorf("a late moment %s after %s, %v", late, took, err)
		}
		if age := c.Age(late); age < 0 || age > 4*c.MaxClockOffset() {
			t.Errorf("its age is %s", age)
		}
		bounded, cancel := c.Bound(ctx)
		if _, has := bounded.Deadline(); !has {
			t.Error("a call has no deadline")
		}
		cancel()
		c.Close()
		if err := c.Pause(ctx, time.Hour); !errors.Is(err, route.ErrClosed) {
			t.Errorf("a pause ended with %v", err)
		}
	})
}

// The first error is what InParallel returns, and nothing is begun after it.
func TestInParallel(t *testing.T) {
	broken := errors.New("broken")
	var ran atomic.Int64
	err := InParallel(t.Context(), 1000, 4, func(ctx context.Context, i int) error {
		if ran.Add(1); i == 3 {
			return broken
		}
		if i > 3 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	if !errors.Is(err, broken) || ran.Load() > 8 {
		t.Errorf("%v after %d calls", err, ran.Load())
	}
}
