package embedded

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// TestEtcdManyLargePuts: a client that puts hundreds of large values at a time, on one connection,
// is served, or told that it is too much or (by a slow machine) took too long, and keeps its
// connection.
func TestEtcdManyLargePuts(t *testing.T) {
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: "/servers", Nodes: 1, Cores: 1,
		Listen: "127.0.0.1:0", Configure: func(_ int, c *ServerConfig) { c.FS = vfs.NewMem() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	client := etcdClient(t, nil, cluster.Endpoints()[0])
	watch := client.Watch(ctx, "other")
	value := strings.Repeat("v", 1536<<10-512)
	var calls sync.WaitGroup
	var done, late atomic.Int64
	tooMuch := func(err error) bool {
		return errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrTimeout)
	}
	for range 250 {
		calls.Go(func() {
			_, err := client.Put(ctx, "k", value)
			switch {
			case err == nil:
				done.Add(1)
			case errors.Is(err, rpctypes.ErrTimeout):
				late.Add(1)
			case !tooMuch(err):
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if done, late := done.Load(), late.Load(); done == 0 || late == 0 && done < 100 {
		t.Errorf("%d puts of 250 were done, and %d took too long", done, late)
	}
	// The watch has not been interrupted.
	for put := false; !put; {
		_, err := client.Put(ctx, "other", "v")
		if put = err == nil; !put && !tooMuch(err) {
			t.Fatal(err)
		}
	}
	if w := <-watch; w.Err() != nil || len(w.Events) == 0 {
		t.Error(w.Err(), w.Events)
	}
	if held := cluster.Server(0).etcd.answers.Held(); held != 0 {
		t.Errorf("answers of %d bytes are on their way", held)
	}
}
