package garbage

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// A partition waits once, however often it is written to, and is forgotten with its replica.
func TestCollectorQueue(t *testing.T) {
	c := New(&hosted.Node{Metrics: hosted.NewMetrics(nil)}, time.Minute)
	a, b := &hosted.Replica{ID: 1}, &hosted.Replica{ID: 2}
	for range 3 {
		c.Noticed(a)
		c.Noticed(b)
	}
	if n := c.Waiting(); n != 2 {
		t.Fatalf("%d partitions wait, want 2", n)
	}
	c.Forget(a)
	if n := c.Waiting(); n != 1 {
		t.Errorf("%d partitions wait, want 1", n)
	}
}
