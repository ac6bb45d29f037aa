package membership

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
)

const (
	// informEvery is the interval at which silent nodes are told the members of the core. maxInformed
	// limits how many nodes are told at a time.
	informEvery = 5 * time.Second
	maxInformed = 16
)

// informNodes sends the members of the core to silent nodes. A node that knows only outdated
// addresses of members cannot find the members itself. The stepper calls informNodes.
func (s *Membership) informNodes(l store.Leadership) {
	if time.Since(s.core.informed) < informEvery {
		return
	}
	s.core.informed = time.Now()
	nodes, err := meta.LoadNodes(s.store.Stale())
	if err != nil {
		return // the stepper tries again later
	}
	var silent []string
	for _, n := range nodes {
		if !n.Alive && n.Address != s.meta.Address(l.Leader) {
			silent = append(silent, n.Address)
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, helloTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i := range min(maxInformed, len(silent)) {
		address := silent[(s.core.next+i)%len(silent)]
		all.Go(func() { _ = s.config.Servers.Inform(ctx, address, s.meta.CoreMembers()) })
	}
	s.core.next += maxInformed
	all.Wait()
}
