package health

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// judgeSlow adds the servers that are slow compared to the others because their processes wait for
// a processor, or because messages to them take long. Slow disks are reported elsewhere, together
// with the other properties of disks.
func (p *Problems) judgeSlow(nodes []admin.NodeInfo, core admin.Core) {
	names := map[uint64]string{}
	var all []Delays
	at := map[string]bool{}
	for _, n := range nodes {
		if n.Alive && n.Status != admin.NodeGone {
			at[n.Address], names[n.ID] = true, fmt.Sprintf("node %d (%s)", n.ID, n.Address)
			all = append(all, Delays{Server: n.ID, Region: n.Region,
				ProcessorWait: n.ProcessorWait, RoundTrips: n.RoundTrips})
		}
	}
	p.addSlow(all, names)
	names, all = map[uint64]string{}, nil
	for _, m := range core.Members {
		if m.Health == nil || !m.Answers {
			continue
		}
		all = append(all, Delays{Server: m.ID, ProcessorWait: m.Health.ProcessorWait,
			RoundTrips: m.Health.RoundTrips})
		if !at[m.Address] { // each server is named once
			names[m.ID] = fmt.Sprintf("core member %d (%s)", m.ID, m.Address)
		}
	}
	p.addSlow(all, names)
}

// addSlow adds the slow servers that have a name.
func (p *Problems) addSlow(all []Delays, names map[uint64]string) {
	for _, slow := range SlowProcessors(all) {
		if name := names[slow.Server]; name != "" {
			p.Unhealthy.Add("%s: its processor is slow, its process waits %v for one, others wait %v",
				name, short(slow.Took), short(slow.Usual))
		}
	}
	for _, slow := range SlowNetworks(all) {
		if name := names[slow.Server]; name != "" {
			p.Unhealthy.Add("%s: its network is slow, a message to it and back takes %v, between "+
				"others %v", name, short(slow.Took), short(slow.Usual))
		}
	}
}

// short rounds a delay for people.
func short(d time.Duration) time.Duration {
	if d >= 10*time.Millisecond {
		return d.Round(time.Millisecond)
	}
	return d.Round(10 * time.Microsecond)
}
