package node

import (
	"context"
	"time"
)

// sweepInterval is how often the locks of transactions are looked through for those whose client is gone. Together with the time after
// which a client counts as gone it is how long its locks stay.
const sweepInterval = time.Second

// sweepLocks looks after the locks in the partitions that are led here.
func (n *Node) sweepLocks(ctx context.Context) {
	for pause(ctx, sweepInterval) == nil {
		for _, h := range n.replicas.all() {
			if h.replica.Locked() && h.leading.Load() && !h.removed.Load() {
				h.replica.SweepLocks(n.config.Clock.Physical())
			}
		}
	}
}
