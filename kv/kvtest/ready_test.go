package kvtest_test

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

// A server says that it is ready only while it would serve: with room on its disk, and with leaders
// for its partitions.
func TestReadyMeansServing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		client := c.Client(t)
		ks := create(t, client, "things", kv.Hash(3))
		put(t, ks, "k", "1")
		says := func(server int, what string) func() bool {
			return func() bool {
				ok, reason := c.Process(server).Ready()
				return ok == (what == "") && strings.Contains(reason, what)
			}
		}
		c.Disk(5).SetLow(true)
		eventually(t, "a server without room to say so", says(5, "is below its reserve"))
		c.Disk(5).SetLow(false)
		eventually(t, "a server with room again to be ready", says(5, ""))
		c.Kill(3, 0)
		c.Kill(4, 0)
		eventually(t, "a server without leaders to say so", says(5, "3 of the 3 partitions with a replica here have no leader"))
		status := c.Process(5).Status()
		if len(status.Leaderless) != 3 || status.LeaderlessTotal != 3 || status.Leaderless[0].Keyspace != "things" || len(status.Leaderless[0].SilentNodes) != 2 {
			t.Errorf("the status names %v, %d in all", status.Leaderless, status.LeaderlessTotal)
		}
		start(t, c, 3)
		eventually(t, "a server with leaders again to be ready", says(5, ""))
		put(t, ks, "k", "2")
	})
}
