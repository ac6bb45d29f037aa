package kvtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// coordinationLeader waits for the server that leads the coordination store.
func coordinationLeader(t *testing.T, c *kvtest.Cluster) (server int) {
	t.Helper()
	waitFor(t, "the coordination store has a leader", func() bool {
		for i := range c.Servers() {
			if p := c.Process(i); p != nil && p.LeadsCoordination() {
				server = i
				return true
			}
		}
		return false
	})
	return server
}

// putCoordination writes a key, with whichever member leads.
func putCoordination(t *testing.T, c *kvtest.Cluster, key, value string) {
	t.Helper()
	var err error
	for range 100 {
		p := c.Process(coordinationLeader(t, c))
		if p == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err = p.PutCoordination(ctx, []byte(key), []byte(value))
		cancel()
		if err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond) // virtual
	}
	t.Fatalf("put %s: %v", key, err)
}

// hasCoordination waits until a server has applied a key of the coordination store with a value.
func hasCoordination(t *testing.T, p *embedded.Server, key, want string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%s is %q", key, want), func() bool {
		got, err := p.GetCoordination([]byte(key))
		return err == nil && string(got) == want
	})
}

// TestCoordinationIsFounded: a new cluster has a coordination store, with all members of its core,
// and goes on with it after a restart of all, and after a loss of power.
func TestCoordinationIsFounded(t *testing.T) {
	for _, cores := range []int{1, 3} {
		t.Run(fmt.Sprint(cores), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: cores, Separate: true,
					Latency: latency})
				putCoordination(t, c, "k", "v")
				all := func(want string) {
					t.Helper()
					for i := range cores {
						hasCoordination(t, c.Process(i), "k", want)
						version, members := c.Process(i).CoordinationMembers()
						if version != 0 || len(members) != cores {
							t.Fatalf("server %d: members %v of version %d", i, members, version)
						}
					}
				}
				all("v")
				for i := range cores {
					if err := c.Stop(i); err != nil {
						t.Fatal(err)
					}
				}
				for i := range cores {
					if err := c.Run(i); err != nil {
						t.Fatal(err)
					}
				}
				all("v")
				putCoordination(t, c, "k", "w")
				for i := range cores {
					c.KillAll(0, i)
				}
				for i := range cores {
					if err := c.Run(i); err != nil {
						t.Fatal(err)
					}
				}
				all("w")
				if p := c.Process(cores); p.LeadsCoordination() || p.LeadsCore() {
					t.Error("a data node leads")
				}
			})
		})
	}
}
