package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Asked notes requests of the foreground as load: reads, writes, locks of small transactions. The
// requests by which large transactions take their locks do not count, nor what goes with them:
// heartbeats, pushes, ends, resolutions. (Their reads do, but they are over by then.) The requests
// may be hostile, but have commands.
func (n *Node) Asked(batch []*kvpb.Request, now time.Time) {
	if n.load.Noted(now) {
		return
	}
	for _, q := range batch {
		if command.Of(q).IsForeground(q) {
			n.load.Note(now)
			return
		}
	}
}
