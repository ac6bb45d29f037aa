package kvtest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// use writes and reads through a fresh keyspace.
func use(t *testing.T, c *kvtest.Cluster) {
	ks, err := c.Client(t).CreateKeyspace(t.Context(), "things", kv.Hash(4))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "key %02d", i),
			[]byte("value")); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for pair, err := range ks.Scan(t.Context(), kv.All()) {
		if err != nil || string(pair.Key) != fmt.Sprintf("key %02d", n) {
			t.Fatal(pair, err)
		}
		n++
	}
	if n != 20 {
		t.Fatalf("%d pairs", n)
	}
}

func TestRealTime(t *testing.T) { use(t, kvtest.Start(t, kvtest.Options{})) }

func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		use(t, kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true,
			Latency: 200 * time.Microsecond}))
		t.Logf("%v of virtual time", time.Since(began))
	})
}
