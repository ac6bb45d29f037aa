package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
)

// TestMain plays a role in the processes that tests start: they are this program again.
func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(context.Background(), role); err != nil {
		fmt.Fprintln(os.Stderr, "txncost:", err)
		os.Exit(1)
	}
}

func startedSeparate(t *testing.T, dir string) *separate {
	t.Helper()
	cluster, err := startSeparate(t.Context(), dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.close)
	return cluster
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("there is still %v, %v", left, err)
	}
}

// TestSeparateServersDoAllOperations does each operation of -what cost and -what wait once, the far
// client's as well.
func TestSeparateServersDoAllOperations(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	cluster := startedSeparate(t, dir)
	client, err := kv.Open(ctx, cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p, err := fill(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	end, err := p.compare(ctx, &config{dir: t.TempDir(), trip: time.Millisecond}, client,
		cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if n := len(p.nodes.all); n != separateServers {
		t.Errorf("the cluster has %d nodes", n)
	}
	for _, o := range append(costs(client, p), waits(goalBound)(client, p)...) {
		if err := o.do(ctx, 0); err != nil {
			t.Errorf("%s: %v", o.name, err)
		}
	}
	cluster.close()
	wantEmpty(t, dir)
	for i, a := range cluster.servers {
		if a.command.ProcessState == nil {
			t.Errorf("server %d has not ended", i+1)
		}
	}
}

// TestSeparateServersEndByThemselves has them wanted no more, as when the benchmark is killed: they
// end, and take their data with them.
func TestSeparateServersEndByThemselves(t *testing.T) {
	dir := t.TempDir()
	cluster := startedSeparate(t, dir)
	for _, a := range cluster.servers {
		_ = a.in.Close()
	}
	for i, a := range cluster.servers {
		if err := a.wait(); err != nil {
			t.Errorf("server %d: %v", i+1, err)
		}
	}
	wantEmpty(t, dir)
}

// TestSeparateServersAreInterrupted has the benchmark interrupted.
func TestSeparateServersAreInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, interrupt := context.WithCancel(t.Context())
	cluster, err := startSeparate(ctx, dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	interrupt()
	for i, a := range cluster.servers {
		if err := a.wait(); err == nil {
			t.Errorf("server %d was not killed", i+1)
		}
	}
	cluster.close()
	wantEmpty(t, dir)
}

// TestSeparateServersThatFail has one of them end before it is ready, since another process has its
// address: the test does not wait for the others, and nothing is left of them.
func TestSeparateServersThatFail(t *testing.T) {
	for i := range separateServers {
		t.Run(fmt.Sprint("server ", i+1), func(t *testing.T) {
			dir := t.TempDir()
			addresses, err := process.FreeAddresses(separateServers)
			if err != nil {
				t.Fatal(err)
			}
			taken, err := net.Listen("tcp", addresses[i])
			if err != nil {
				t.Fatal(err)
			}
			defer taken.Close()
			cluster, err := startSeparateAt(t.Context(), dir, 0, addresses)
			if err == nil {
				cluster.close()
			}
			if want := fmt.Sprintf("server %d ended before", i+1); err == nil ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			wantEmpty(t, dir)
		})
	}
}
