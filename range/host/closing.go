package host

import (
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/clockhealth"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host/closing"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// sleepCloser closes timestamps for a group, by heartbeats and while the group sleeps. It is the
// group's closing.Replica.
type sleepCloser struct {
	group *Group
	// closer is the state machine, or nil if the state machine closes no timestamps.
	closer group.Closer
}

// bring adds to the heartbeats of a leader, before they are sent, the timestamp that the leader
// closes.
func (s *sleepCloser) bring(messages []*peerpb.RaftMessage) {
	var closed hlc.Timestamp
	var index uint64
	asked := false
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgHeartbeat || m.GetWake() {
			continue
		}
		if !asked {
			if s.closer == nil {
				return
			}
			asked = true
			closes := false
			if closed, index, closes = s.closer.CloseIdle(); !closes {
				return
			}
		}
		// Heartbeats carry only the wall time. Followers take the timestamp with logical part 0,
		// which is not above the leader's closed timestamp.
		m.Closed, m.ClosedIndex = uint64(closed.Wall), index
	}
}

// take records the closed timestamp of a heartbeat. The timestamp holds even if its sender does not
// lead any more.
func (s *sleepCloser) take(m *peerpb.RaftMessage) {
	if m.GetClosed() != 0 {
		s.NoteClosed(hlc.Timestamp{Wall: int64(m.GetClosed())}, m.GetClosedIndex())
	}
}

// sleep adds a group that is about to sleep under this host's replica to a set for which timestamps
// are closed together. It returns false if the group must not sleep yet, because no timestamp would
// be closed for it while it sleeps.
func (s *sleepCloser) sleep() bool {
	g := s.group
	members := g.Configuration()
	if s.closer == nil || members.Joint() {
		return true
	}
	var c closing.Class
	for _, m := range members.Members {
		host := g.HostOf(m.Replica)
		switch {
		case host == 0 || slices.Contains(c.Voters, host) || slices.Contains(c.Others, host):
			return true // the host of that replica is unknown
		case m.Role == group.Voter:
			c.Voters = append(c.Voters, host)
		default:
			c.Others = append(c.Others, host)
		}
	}
	if !slices.Contains(c.Voters, g.host.config.Self) {
		return true
	}
	return s.closer.Sleep(func(
		term uint64, closable hlc.Timestamp, lag time.Duration, index uint64,
	) group.Place {
		c.Lag = lag
		if t := g.host.leading.Add(g.ID(), term, index, c, closable.Wall); t != nil {
			return t
		}
		return nil
	})
}

// Follows implements closing.Replica.
func (s *sleepCloser) Follows(host, term uint64) bool {
	l := s.group.leadership.Load()
	return l.Term == term && !l.IsLeader && (l.Leader == 0 || s.group.HostOf(l.Leader) == host)
}

// SleepsIn implements closing.Replica.
func (s *sleepCloser) SleepsIn(m *closing.Membership) {
	switch {
	case s.closer == nil:
	case m == nil:
		s.closer.SleepsIn(nil)
	default:
		s.closer.SleepsIn(m)
	}
}

// NoteClosed implements closing.Replica.
func (s *sleepCloser) NoteClosed(closed hlc.Timestamp, index uint64) {
	if s.closer != nil {
		s.closer.NoteClosed(closed, index)
	}
}

// sleepers holds the sets of groups for which timestamps are closed while they sleep, under leaders
// on this host and on other hosts.
type sleepers struct {
	leading   *closing.Leading
	following *closing.Following
	// round is the number of the last tick's round.
	round atomic.Uint64
}

// tells reports whether a ping to a host must carry something about sleeping groups: news of this
// host's sets, or an answer about the host's own.
func (s *sleepers) tells(host uint64) bool {
	return s.leading.Tells(host) || s.following.Owes(host)
}

// wakeUnclosed wakes groups that sleep under replicas here and have lost their place in a set, so
// that no timestamp is closed for them any more: a follower did not follow, or could not be asked,
// when they went to sleep. It wakes only as many as leave the host free to finish other work; the
// rest follow at later ticks.
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
		if closer := g.closes.closer; closer != nil && closer.Unclosed() {
			g.do(func(g *Group) { g.core.Wake() })
			if left--; left == 0 {
				return
			}
		}
	}
}

// sleeper finds the replica of a group that may sleep under another host.
func (h *Host) sleeper(id keys.PartitionID) closing.Replica {
	if g := h.Group(id); g != nil {
		return &g.closes
	}
	return nil
}

// beginRound begins a round of closing timestamps for sleeping groups.
func (h *Host) beginRound() (round uint64) {
	wall, trusted := h.config.Clock.PhysicalReading()
	if trusted {
		state, _ := h.clocks.State()
		trusted = state == clockhealth.Trusted
	}
	round = h.leading.Begin(wall, trusted)
	h.round.Store(round)
	return round
}

// hearClosed takes the part of a ping that is about sleeping groups.
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

// SleepingClosed returns for how many groups that sleep under leaders here timestamps are closed,
// and in how many sets these groups are.
func (s *sleepers) SleepingClosed() (groups, sets int) { return s.leading.Groups() }
