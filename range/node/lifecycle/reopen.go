package lifecycle

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// Reopen opens all replicas that the raft log knows, without asking the core.
func (n *Lifecycle) Reopen() error {
	began := time.Now()
	identities, err := n.Host.Log().Identities()
	if err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	marked, err := ReadRemovals(n.Log)
	if err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	var live, unfinished []raftlog.Identity
	for _, id := range identities {
		switch {
		case marked[id.Group]:
			unfinished = append(unfinished, id)
		case !id.Removed:
			live = append(live, id)
		}
	}
	if err := n.resumeRemoval(unfinished); err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	if live, err = n.Children.restore(identities, live); err != nil {
		return fmt.Errorf("node %s: %w", n.ID, err)
	}
	opened := n.openAll(live, false, func(id raftlog.Identity, err error) {
		// The others serve; this replica needs an operator.
		n.Logger.Error("A REPLICA DOES NOT OPEN and is left alone; its partition goes on with the "+
			"other replicas",
			"partition", id.Group, "replica", id.Replica, "error", err)
		n.setBroken(id, err)
	})
	n.Replicas.Change(opened, nil)
	if len(live) > 0 {
		n.Logger.Info("replicas are open", "replicas", len(opened), "broken", len(live)-len(opened),
			"took", time.Since(began).Round(time.Millisecond))
	}
	return nil
}
