package kvtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestASlowReadHoldsUpNobody: while reads wait for a disk, the same client goes on with what needs
// none, in the same partitions, and does not give the node up.
func TestASlowReadHoldsUpNobody(t *testing.T) {
	c := kvtest.Start(t, kvtest.Options{Nodes: 1})
	registry := prometheus.NewRegistry()
	client := c.Client(t, kvprom.Metrics(registry))
	ks := create(t, client, "things", kv.Hash(4), kv.Replicas(1))
	// More than the block cache holds, so that some of it has to be read from the disk after a
	// restart.
	value := make([]byte, 64<<10)
	random := rand.NewChaCha8([32]byte{1})
	for i := range 300 {
		_, _ = random.Read(value)
		put(t, ks, fmt.Sprintf("cold %d", i), string(value))
	}
	if err := c.Restart(0); err != nil {
		t.Fatal(err)
	}
	ready(t, c)
	// A key that was written lately can be written again without a look at what is stored.
	warm := func(n int) []byte { return fmt.Appendf(nil, "warm %d", n) }
	for i := range 16 {
		put(t, ks, string(warm(i)), "1")
	}
	before := retries(t, registry)
	c.Disk(0).HoldReads(true)
	defer c.Disk(0).HoldReads(false)
	const slow = 4
	answers := make(chan error, slow)
	for i := range slow {
		go func() {
			pair, err := ks.Get(context.WithoutCancel(t.Context()), fmt.Appendf(nil, "cold %d",
				10*i))
			if err == nil && len(pair.Value) != len(value) {
				err = fmt.Errorf("%d bytes", len(pair.Value))
			}
			answers <- err
		}()
	}
	// Longer than the client puts up with a node that says nothing. At a pace: compactions read as
	// well and are held too, so the disk takes no more than the databases hold without them.
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for began := time.Now(); time.Since(began) < 3*time.Second; <-pace.C {
		for i := range 16 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if _, err := ks.Put(ctx, warm(i), []byte("2")); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}
	c.Disk(0).HoldReads(false)
	for range slow {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	mustHold(t, ks, string(warm(0)), "2")
	if now := retries(t, registry); now != before {
		t.Errorf("requests were sent again %v times", now-before)
	}
}

// retries is how many requests a client has sent again because of a connection.
func retries(t *testing.T, registry *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == "connection" {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}
