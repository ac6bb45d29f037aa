package host

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// refusalsEvery is how often the log tells of refused messages, however many there are.
const refusalsEvery = 10 * time.Second

// refusals tells of messages that were refused because they cannot be (group.Refusal). One now and
// then is a forged or corrupted message; many from one peer are a peer that is not what it says.
type refusals struct {
	mu sync.Mutex
	// told is when the log was told last, by the host's monotonic clock; 0: never. since counts
	// those that it was not told of.
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
