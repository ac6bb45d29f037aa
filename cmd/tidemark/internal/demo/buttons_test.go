package demo

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A newcomer's tour: the load goes on while a server is stopped, started again, cut off and joined,
// and a node is added.
func TestTour(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var b *Buttons
	cluster, err := embedded.StartCluster(ctx, embedded.ClusterConfig{Dir: t.TempDir(), Nodes: 3,
		Cores: 1, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0",
		Demo: func(c *embedded.Cluster) console.Demo {
			b = New(c)
			return b
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	defer b.Close()
	must := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: not in time; the servers are %+v, the load %+v", what, b.Servers(), b.Load())
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	ready := func(what string) {
		until(what, func() bool { ok, _ := cluster.Ready(); return ok })
	}
	must("waiting", cluster.WaitReady(ctx))
	must("starting the load", b.StartLoad(ctx))
	must("starting the load again", b.StartLoad(ctx))
	works := func(what string) { until(what, func() bool { return b.Load().Done > 50 }) }
	works("the load works")
	must("stopping", b.Stop(ctx, 3))
	if b.Stop(ctx, 3) == nil || b.Stop(ctx, 9) == nil || b.Stop(ctx, 0) == nil ||
		b.Start(ctx, 1) == nil || b.Isolate(ctx, 3) == nil {
		t.Error("what is stopped, or not there, was stopped; or what runs, started")
	}
	if s := b.Servers(); len(s) != 3 || s[2].State != "stopped" || !s[0].Core || s[0].Node == 0 {
		t.Errorf("the servers are %+v", s)
	}
	works("the load goes on without a server")
	must("starting", b.Start(ctx, 3))
	ready("the server is back")
	must("isolating", b.Isolate(ctx, 2))
	if s := b.Servers(); s[1].State != "isolated" {
		t.Errorf("the servers are %+v", s)
	}
	works("the load goes on")
	must("joining", b.Join(ctx, 2))
	must("adding", b.Add(ctx))
	ready("the new node is ready")
	if s := b.Servers(); len(s) != 4 || s[3].State != "running" || s[3].Core {
		t.Errorf("the servers are %+v", s)
	}
	if load := b.Load(); !load.Running || load.Failed != 0 {
		t.Errorf("the load is %+v", load)
	}
	must("stopping the load", b.StopLoad(ctx))
	if load := b.Load(); load != (console.DemoLoad{}) {
		t.Errorf("the load is %+v", load)
	}
}
