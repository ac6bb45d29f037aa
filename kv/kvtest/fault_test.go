package kvtest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// leading says whether a server leads its partition as far as it knows, and the term.
func leading(c *kvtest.Cluster, server int) (leads bool, term uint64) {
	for _, r := range c.Process(server).Replicas() {
		return r.Leads, r.Term
	}
	return false, 0
}

// A disk that fails once ends its server, which says so; what it had acknowledged is there when it
// is started again.
func TestOneDiskError(t *testing.T) {
	for _, op := range []kvtest.DiskOp{kvtest.DiskRead, kvtest.DiskWrite, kvtest.DiskSync} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, func(_ int, s *embedded.ServerConfig) {
					s.MemTableBytes, s.CacheBytes = 64<<10, 64<<10
				})
				ks := create(t, c.Client(t), "things", kv.Range())
				value := strings.Repeat("v", 4<<10)
				for i := range 100 {
					put(t, ks, fmt.Sprint(i), value)
				}
				bad := leaderOf(t, c)
				c.Disk(bad).Fail(op, 1)
				for i := range 100 {
					mustHold(t, ks, fmt.Sprint(i), value)
					put(t, ks, fmt.Sprint(i), "2")
				}
				err := c.Process(bad).Err()
				if err != nil && !errors.Is(err, kvtest.ErrDisk) || err == nil &&
					op != kvtest.DiskRead {
					t.Errorf("the server failed with %v", err)
				}
				c.Kill(bad, 50)
				start(t, c, bad)
				for i := range 100 {
					mustHold(t, ks, fmt.Sprint(i), "2")
				}
				equal(t, c)
			})
		})
	}
}
