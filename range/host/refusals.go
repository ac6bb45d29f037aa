package host

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// refusalsEvery is the least time between two log lines about refused messages.
const refusalsEvery = 10 * time.Second

// refusals logs messages that were refused because no correct peer sends them (group.Refusal). A
// single one is a forged or corrupted message; many from one peer mean that the peer is not what it
// claims to be.
type refusals struct {
	mu sync.Mutex
	// told is the monotonic time of the last log line; 0: none was written. since counts the
	// refusals after it.
	told, since int64
}

// refused counts a message that was refused.
func (h *Host) refused(g *Group, m *peerpb.RaftMessage, why group.Refusal) {
	h.metrics.refused[why].Inc()
	r, now := &h.refusals, h.now()
	r.mu.Lock()
	if r.told != 0 && now-r.told < int64(refusalsEvery) {
		r.since++
		r.mu.Unlock()
		return
	}
	since := r.since
	r.told, r.since = max(now, 1), 0
	r.mu.Unlock()
	from := replicaID(m.GetFrom())
	h.config.Logger.Warn(
		"a message that cannot be was refused; it was forged or corrupted, or "+
			"its sender's or this replica's log has lost something",
		"reason",
		string(why),
		"partition",
		g.ID(),
		"replica",
		g.Self(),
		"peer",
		from,
		"host",
		g.HostOf(from),
		"type",
		m.GetType(),
		"term",
		m.GetTerm(),
		"index",
		m.GetIndex(),
		"commit",
		m.GetCommit(),
		"own_term",
		g.leadership.Load().Term,
		"others_since_the_last_line",
		since,
	)
}
