package host

import (
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/closing"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// bringClosed has the heartbeats of a leader, which are sent next, say what it closes.
func (g *Group) bringClosed(messages []*peerpb.RaftMessage) {
	var closed hlc.Timestamp
	var index uint64
	asked := false
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgHeartbeat || m.GetWake() {
			continue
		}
		if !asked {
			closer, closes := g.machine.(group.Closer)
			if !closes {
				return
			}
			asked = true
			if closed, index, closes = closer.CloseIdle(); !closes {
				return
			}
		}
		// Of a leader's closed timestamps only the wall time says anything, unless they are of reads;
		// what is below is closed too.
		m.Closed, m.ClosedIndex = uint64(closed.Wall), index
	}
}

// takeClosed takes what a heartbeat says. It holds whether that leader still leads or not.
func (g *Group) takeClosed(m *peerpb.RaftMessage) {
	if m.GetClosed() == 0 {
		return
	}
	if closer, closes := g.machine.(group.Closer); closes {
		closer.NoteClosed(hlc.Timestamp{Wall: int64(m.GetClosed())}, m.GetClosedIndex())
	}
}

// sleepClosed has timestamps closed for a group that is about to sleep under this host's replica,
// together with the others that sleep. It returns false if that cannot be yet: it would be closed
// up to now for as long as it sleeps.
func (g *Group) sleepClosed() bool {
	closer, closes := g.machine.(group.Closer)
	members := g.Configuration()
	if !closes || members.Joint() {
		return true
	}
	var c closing.Class
	for _, m := range members.Members {
		host := g.HostOf(m.Replica)
		switch {
		case host == 0 || slices.Contains(c.Voters, host) || slices.Contains(c.Others, host):
			return true // it is not known where that replica is
		case m.Role == group.Voter:
			c.Voters = append(c.Voters, host)
		default:
			c.Others = append(c.Others, host)
		}
	}
	if !slices.Contains(c.Voters, g.host.config.Self) {
		return true
	}
	return closer.Sleep(func(
		term uint64, closable hlc.Timestamp, lag time.Duration, index uint64,
	) group.Place {
		c.Lag = lag
		if t := g.host.leading.Add(g.id, term, index, c, closable.Wall); t != nil {
			return t
		}
		return nil
	})
}

// wakeUnclosed has groups woken that sleep under replicas here without a timestamp being closed for
// them any more: a follower did not follow, or could not be asked, when they went to sleep. As many
// are woken as do not keep others from ending what they do; the others have their turn later.
func (h *Host) wakeUnclosed() {
	left := min(wakesPerTick, BusyGroups-h.Awake())
	if left <= 0 {
		return
	}
	var asleep []*Group
	h.Groups(func(g *Group) {
		if !g.stirring.Load() && g.leadership.Load().IsLeader {
			asleep = append(asleep, g)
		}
	})
	for _, g := range asleep {
		if closer, closes := g.machine.(group.Closer); closes && closer.Unclosed() {
			g.do(func(g *Group) { g.core.Wake() })
			if left--; left == 0 {
				return
			}
		}
	}
}

// Follows implements closing.Replica.
func (g *Group) Follows(host, term uint64) bool {
	l := g.leadership.Load()
	return l.Term == term && !l.IsLeader && (l.Leader == 0 || g.HostOf(l.Leader) == host)
}

// SleepsIn implements closing.Replica.
func (g *Group) SleepsIn(m *closing.Membership) {
	closer, closes := g.machine.(group.Closer)
	switch {
	case !closes:
	case m == nil:
		closer.SleepsIn(nil)
	default:
		closer.SleepsIn(m)
	}
}

// NoteClosed implements closing.Replica.
func (g *Group) NoteClosed(closed hlc.Timestamp, index uint64) {
	if closer, closes := g.machine.(group.Closer); closes {
		closer.NoteClosed(closed, index)
	}
}

// sleeper finds the replica of a group that may sleep under another host.
func (h *Host) sleeper(id keys.PartitionID) closing.Replica {
	if g := h.Group(id); g != nil {
		return g
	}
	return nil
}

// beginRound begins a round of what is closed for groups that sleep.
func (h *Host) beginRound() (round uint64) {
	wall, trusted := h.config.Clock.PhysicalReading()
	if trusted {
		state, _ := h.clocks.State()
		trusted = state == clockhealth.Trusted
	}
	return h.leading.Begin(wall, trusted)
}

// hearClosed takes what a ping says of groups that sleep.
func (h *Host) hearClosed(from uint64, p *peerpb.HostPing) {
	if a := p.GetAnswer(); a.GetIncarnation() == h.incarnation {
		h.leading.Answered(from, a)
	}
	if p.GetRound() != 0 {
		clock := h.config.Clock
		h.following.Heard(from, p.GetIncarnation(), p.GetRound(), p.GetSleeping(),
			clock.Physical()+int64(clock.MaxOffset()))
	}
}

// SleepingClosed is for how many groups that sleep under leaders here timestamps are closed, and in
// how many sets.
func (h *Host) SleepingClosed() (groups, sets int) { return h.leading.Groups() }
