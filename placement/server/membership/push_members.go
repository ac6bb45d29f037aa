package membership

import (
	"context"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
)

const (
	// informEvery is the interval at which silent nodes are told the members of the core,
	// maxInformed bounds how many of them at a time.
	informEvery = 5 * time.Second
	maxInformed = 16
)

// informNodes tells nodes that have fallen silent the members of the core: a node that knows only
// addresses that no longer are those of members cannot find out by itself. The stepper calls it.
func (s *Membership) informNodes(l store.Leadership) {
	if s.config.Inform == nil || time.Since(s.core.informed) < informEvery {
		return
	}
	s.core.informed = time.Now()
	nodes, err := meta.LoadNodes(s.store.Stale())
	if err != nil {
		return // it is tried again
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
		all.Go(func() { _ = s.config.Inform(ctx, address, s.meta.CoreMembers()) })
	}
	s.core.next += maxInformed
	all.Wait()
}
