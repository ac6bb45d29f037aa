package direct_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// add adds 1 to a counter, and returns what it was after that. Attempts that may have been done are
// not done again.
func add(ctx context.Context, c *clientv3.Client, key string) (int, error) {
	for {
		got, err := c.Get(ctx, key)
		if err != nil {
			return 0, err
		}
		n, revision := 0, int64(0)
		if len(got.Kvs) > 0 {
			if n, err = strconv.Atoi(string(got.Kvs[0].Value)); err != nil {
				return 0, err
			}
			revision = got.Kvs[0].ModRevision
		}
		done, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
			Then(clientv3.OpPut(key, strconv.Itoa(n+1))).Commit()
		if err != nil || done.Succeeded {
			return n + 1, err
		}
	}
}

// When the server ends that is called, no call that was acknowledged is lost, the counter counts
// none twice, and afterwards the new leader is called.
func TestLeaderEnds(t *testing.T) {
	addresses, servers := startCore(t, 3)
	client, calls := open(t, direct.Config{}, clientv3.Config{Endpoints: addresses})
	leads := func(i int) bool { return servers[i].LeadsCoordination() }
	leader := func() int {
		for i := range servers {
			if leads(i) {
				return i
			}
		}
		return -1
	}
	await(t, client, "the leader is called", func() bool {
		l := leader()
		return l >= 0 && calls.Server() == addresses[l]
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var sure, unsure atomic.Int64
	var adding sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		adding.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := add(ctx, client, "counter"); err == nil {
					sure.Add(1)
				} else if ctx.Err() != nil {
					t.Errorf("%v", err)
					return
				} else {
					unsure.Add(1)
				}
			}
		})
	}
	grows := func(by int64) {
		more := sure.Load() + by
		await(t, client, "the counter grows", func() bool { return sure.Load() > more })
	}
	grows(20)
	old := leader()
	if err := servers[old].Close(t.Context()); err != nil {
		t.Error(err)
	}
	grows(20)
	await(t, client, "the new leader is called", func() bool {
		l := leader()
		return l >= 0 && l != old && calls.Server() == addresses[l]
	})
	grows(20)
	close(stop)
	adding.Wait()
	got, err := client.Get(ctx, "counter")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(got.Kvs[0].Value), 10, 64)
	if err != nil || n < sure.Load() || n > sure.Load()+unsure.Load() {
		t.Errorf("the counter is %d: %d were acknowledged, %d may have been done", n, sure.Load(),
			unsure.Load())
	}
}

// Requests alternately by gRPC and past it have the same errors, and see what the other has done.
func TestBothWays(t *testing.T) {
	addresses, _ := startCore(t, 1)
	past, calls := open(t, direct.Config{}, clientv3.Config{Endpoints: addresses})
	by, err := clientv3.New(clientv3.Config{Endpoints: addresses, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = by.Close() })
	await(t, past, "a direct connection", func() bool { return calls.Server() != "" })
	ctx := t.Context()
	for i, client := range []*clientv3.Client{past, by, past, by} {
		if n, err := add(ctx, client, "n"); err != nil || n != i+1 {
			t.Errorf("%d, %v", n, err)
		}
	}
	for name, do := range map[string]func(*clientv3.Client) error{
		"no key":   func(c *clientv3.Client) error { _, err := c.Put(ctx, "", ""); return err },
		"no lease": func(c *clientv3.Client) error { _, err := c.Revoke(ctx, 77); return err },
		"lease of no": func(c *clientv3.Client) error {
			_, err := c.Put(ctx, "k", "v", clientv3.WithLease(78))
			return err
		},
		"future": func(c *clientv3.Client) error {
			_, err := c.Get(ctx, "k", clientv3.WithRev(1<<40))
			return err
		},
		"twice": func(c *clientv3.Client) error {
			_, err := c.Txn(ctx).Then(clientv3.OpPut("a", ""), clientv3.OpPut("a", "")).Commit()
			return err
		},
		"too large": func(c *clientv3.Client) error {
			_, err := c.Put(ctx, "k", string(make([]byte, 1700<<10)))
			return err
		},
		"large": func(c *clientv3.Client) error {
			_, err := c.Put(ctx, "k", string(make([]byte, 100<<10)))
			return err
		},
		"late": func(c *clientv3.Client) error {
			ended, cancel := context.WithTimeout(ctx, -1)
			defer cancel()
			_, err := c.Get(ended, "k")
			return err
		},
	} {
		got, want := do(past), do(by)
		if fmt.Sprint(got) != fmt.Sprint(want) || rpctypes.Error(got) != rpctypes.Error(want) &&
			!errors.Is(got, context.DeadlineExceeded) {
			t.Errorf("%s: %v past gRPC, %v by gRPC", name, got, want)
		}
	}
	if calls.Server() == "" {
		t.Error("calls go by gRPC")
	}
}

// A service that is etcd itself is called by gRPC only, and no call fails.
func TestEtcdItself(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	client, calls := open(t, direct.Config{}, clientv3.Config{Endpoints: etcd.Endpoints()})
	for i := range 200 {
		if n, err := add(t.Context(), client, "n"); err != nil || n != i+1 {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if at := calls.Server(); at != "" {
		t.Errorf("called at %s", at)
	}
}

// Calls that are closed while calls are under way leave the client to go on by gRPC.
func TestCloseWhileCalling(t *testing.T) {
	addresses, _ := startCore(t, 1)
	client, calls := open(t, direct.Config{}, clientv3.Config{Endpoints: addresses})
	await(t, client, "a direct connection", func() bool { return calls.Server() != "" })
	var sure, unsure atomic.Int64
	var adding sync.WaitGroup
	closed := make(chan struct{})
	for range 8 {
		adding.Go(func() {
			for i := 0; i < 10; {
				select {
				case <-closed:
					i++
				default:
				}
				if _, err := add(t.Context(), client, "n"); err == nil {
					sure.Add(1)
				} else {
					unsure.Add(1)
				}
			}
		})
	}
	await(t, client, "the counter grows", func() bool { return sure.Load() > 50 })
	calls.Close()
	close(closed)
	adding.Wait()
	got, err := client.Get(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(string(got.Kvs[0].Value), 10, 64)
	if err != nil || n < sure.Load() || n > sure.Load()+unsure.Load() || unsure.Load() > 16 {
		t.Errorf("the counter is %d: %d were acknowledged, %d may have been done", n, sure.Load(),
			unsure.Load())
	}
	if calls.Server() != "" {
		t.Error("closed calls go on")
	}
}
