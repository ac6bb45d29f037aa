package reference

import (
	"context"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Test starts a cluster for a test, and fails the test if that is not possible. The cluster is
// closed when the test ends. If the test failed, the ends of the members' logs are shown.
func Test(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Start(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for i := range c.members {
				t.Logf("the log of etcd %s ends:\n%s", name(i), process.Tail(c.LogPath(i), 2000))
			}
		}
		if err := c.Close(); err != nil {
			t.Errorf("closing etcd: %v", err)
		}
	})
	return c
}
