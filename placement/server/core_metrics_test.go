package server

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
)

// coreGauges are a member's metrics of the core's members.
func coreGauges(t *testing.T, m *member) map[string]float64 {
	t.Helper()
	return gaugesOf(t, m, "tidemark_core_")
}

// gaugesOf are a member's metrics whose names begin with a prefix, by the rest of their names.
func gaugesOf(t *testing.T, m *member, prefix string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.server.metrics.collectors...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	gauges := map[string]float64{}
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), prefix); ok {
			gauges[name] = f.Metric[0].GetGauge().GetValue()
		}
	}
	return gauges
}

// TestCoreMetrics: the leader counts the members of the core and says how long a change and its
// present step have been under way; the others say nothing. A new leader counts the step anew, and
// the change from its beginning.
func TestCoreMetrics(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		c.serves(client)
		c.mu.Lock()
		leader := c.leader
		c.mu.Unlock()
		expect := func(m *member, members, voters, learners, changes float64) {
			t.Helper()
			g := coreGauges(t, m)
			if g["members"] != members || g["voters"] != voters || g["learners"] != learners ||
				g["membership_changes"] != changes {
				t.Errorf("%v, want %v members, %v voters, %v learners, %v changes", g, members, voters,
					learners, changes)
			}
		}
		aged := func(m *member, change, step float64) {
			t.Helper()
			g := coreGauges(t, m)
			near := func(got, want float64) bool { return got >= want && got <= want+5 }
			if !near(g["membership_change_age_seconds"], change) ||
				!near(g["membership_change_step_age_seconds"], step) {
				t.Errorf("%v, want an age of %v s, and %v s of the step", g, change, step)
			}
		}
		expect(leader, 3, 3, 0, 0)
		aged(leader, 0, 0)
		c.offers("new:1", 104)
		c.mu.Lock()
		c.lagging[4] = true
		c.mu.Unlock()
		if err := c.change(client, "new:1", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(400 * time.Second) // virtual
		expect(leader, 4, 3, 1, 1)
		aged(leader, 400, 400)
		c.mu.Lock()
		var other *member
		for _, m := range c.members {
			if m != leader {
				other = m
			}
		}
		c.mu.Unlock()
		expect(other, 0, 0, 0, 0)
		c.elect(other)
		time.Sleep(100 * time.Second) // virtual
		expect(leader, 0, 0, 0, 0)
		expect(other, 4, 3, 1, 1)
		aged(other, 500, 100)
		c.mu.Lock()
		c.lagging[4] = false
		c.mu.Unlock()
		c.await("the newcomer votes", func() bool {
			return coreGauges(t, other)["membership_changes"] == 0
		})
		expect(other, 4, 4, 0, 0)
		aged(other, 0, 0)
	})
}
