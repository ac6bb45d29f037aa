package kvtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestSlowRequests: a write that waits for a transaction's lock is among the slow requests. Its parts
// add up, the wait for the lock is the longest, and the lock is named. A node that is down keeps
// nobody from seeing what the others remember.
func TestSlowRequests(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency,
			Configure: func(_ int, c *embedded.ServerConfig) { c.SlowThreshold = 200 * time.Millisecond }})
		client := c.Client(t)
		ctx := t.Context()
		ks := create(t, client, "fruit", kv.Hash(4))
		tx, err := client.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.GetForUpdate(ctx, ks, []byte("apple")); !errors.Is(err, kv.ErrNotFound) {
			t.Fatal(err)
		}
		put := make(chan error, 1)
		go func() {
			_, err := ks.Put(ctx, []byte("apple"), []byte("red"))
			put <- err
		}()
		time.Sleep(500 * time.Millisecond) // of the bubble's time
		tx.Rollback()
		if err := <-put; err != nil {
			t.Fatal(err)
		}
		if _, err := ks.Put(ctx, []byte("pear"), []byte("green")); err != nil {
			t.Fatal(err)
		}
		found, err := admin.New(client).SlowRequests(ctx, admin.SlowQuery{Keyspace: "fruit"})
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Requests) != 1 || len(found.Nodes) != 3 {
			t.Fatalf("found %+v", found)
		}
		x := found.Requests[0]
		if x.Kind != "put" || string(x.Key) != "apple" || x.Keyspace != "fruit" || x.Error != "" ||
			x.Took < 400*time.Millisecond || x.Took > time.Second || x.ClientAddress == "" {
			t.Errorf("the slow request is %+v", x)
		}
		parts, sum := map[string]time.Duration{}, time.Duration(0)
		for _, p := range x.Parts {
			parts[p.Name], sum = p.Took, sum+p.Took
		}
		if sum != x.Took || parts["lock"] < 400*time.Millisecond || parts["replicate"] < 2*latency {
			t.Errorf("of %s, the parts took %v", x.Took, parts)
		}
		if string(x.Lock.Key) != "apple" || len(x.Lock.Transaction) == 0 {
			t.Errorf("it waited for the lock %+v", x.Lock)
		}
		redacted, err := admin.New(client).SlowRequests(ctx, admin.SlowQuery{Redact: true})
		if err != nil || len(redacted.Requests) != 1 || len(redacted.Requests[0].Key) > 0 ||
			redacted.Requests[0].KeyHash != redacted.Requests[0].Lock.KeyHash {
			t.Errorf("redacted: %+v, %v", redacted, err)
		}
		if err := c.Stop(c.Servers() - 1); err != nil {
			t.Fatal(err)
		}
		var unanswered *admin.UnansweredNodesError
		found, err = admin.New(client).SlowRequests(ctx, admin.SlowQuery{})
		if !errors.As(err, &unanswered) || len(unanswered.Nodes) != 1 || len(found.Nodes) != 2 {
			t.Errorf("with a node down: %+v, %v", found.Nodes, err)
		}
	})
}
