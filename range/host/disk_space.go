package host

import (
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A follower without room stores nothing more that it is sent: otherwise the leader, which has a
// quorum without it, would fill the rest of its disk, which the engines need for flushes and
// compactions, the core for its own log, and the removal of a keyspace for saying so. To the leader
// it looks like a follower that is slow: messages with entries are lost, heartbeats are answered.
// When there is room again the answer to the next heartbeat shows what is missing, and the leader
// sends that.
//
// How much is taken in is bounded before the room ends, so that what is under way then fits too: a
// follower that was away is sent megabytes at once, by the leaders of many groups. What is taken
// needs copies times its size of the disk, and there must be so much above the part of the reserve
// that is kept. A part of the reserve is not, so that a leader whose followers all run out of room
// at the same time gets its last entries committed: while no quorum has room, followers take
// entries of data down to a part that deletions still leave alone (Room.UnderWay), because a
// deletion comes behind those entries in the log. Entries without data, with which a leadership
// begins, are always taken.
//
// Entries that lead to more room use more of the reserve (group.Share): otherwise a disk that is
// full could never be made less full.

// copies is how often an entry is on the disk in the worst case: in the log's file, in a table of
// the log, and in one of the state.
const copies = 3

// diskSpace is how much this host may still store.
type diskSpace struct {
	// none and takesShare are what peers are told: see Room. bounded: left counts.
	none, bounded atomic.Bool
	takesShare    atomic.Uint32

	mu struct {
		sync.Mutex
		// left is how many bytes of entries of each share may still be taken, underWay how many of
		// data while no quorum has room, and taken how many of all were since SetRoom.
		left            [group.Shares]int64
		underWay, taken int64
		// refused is the size of a message that was refused; 0 if there is room for it now.
		refused int64
	}
}

// Unbounded is a disk with more room than what can come before it is looked at again.
const Unbounded = math.MaxInt64

// Room is what a disk has room for.
type Room struct {
	// None says that the disk is below its reserve.
	None bool
	// Bytes is how many bytes of the disk may be taken for entries of each share in all, for those
	// too that are under way to the log. Unbounded: as many as come.
	Bytes [group.Shares]int64
	// UnderWay is how many bytes of the disk may be taken for entries of data that leaders proposed
	// before a quorum ran out of room.
	UnderWay int64
	// Takes is the smallest share of which a disk below its reserve takes entries; NoShare: none.
	Takes group.Share
}

// SetRoom says what the disk has room for. The peers are told in pings. It is called with each
// tick.
func (h *Host) SetRoom(room Room) {
	r := &h.disk
	r.mu.Lock()
	defer r.mu.Unlock()
	// What was taken a moment ago may be between the inbox and the log.
	inbound := max(r.mu.taken, h.inboxes.held.Load()+h.log.Pending())
	r.mu.taken = 0
	bounded := room.Bytes[group.NoShare] != Unbounded
	for share, bytes := range room.Bytes {
		r.mu.left[share] = bytes/copies - inbound
	}
	r.mu.underWay = room.UnderWay/copies - inbound
	if !bounded || r.mu.left[group.NoShare] >= r.mu.refused {
		r.mu.refused = 0
	}
	r.bounded.Store(bounded)
	r.takesShare.Store(uint32(room.Takes))
	// A leader must not count on a follower that has no room for what it is sent.
	r.none.Store(room.None || r.mu.refused > 0)
}

// UnappliedBytes is about how much is in the logs and not applied yet.
func (h *Host) UnappliedBytes() (bytes int64) {
	h.Groups(func(g *Group) { bytes += g.storage.BytesAbove(g.appliedState().Index) })
	return bytes
}

// takes takes in a message for a group: with all of its entries, or only those of the first for
// which there is room, or not at all, and then it returns false.
func (r *diskSpace) takes(g *Group, m *peerpb.RaftMessage) bool {
	if !r.bounded.Load() || !hasData(m) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	taken, size := 0, int64(messageOverhead(m))
	for _, e := range m.GetEntries() {
		size += entrySize(e)
		if size > r.mu.left[group.NoShare] {
			share := g.shareOf(e)
			left := r.mu.left[share]
			if share == group.NoShare && g.noQuorumHasRoom() {
				left = r.mu.underWay
			}
			if size > left {
				if taken == 0 && share == group.NoShare {
					r.mu.refused = max(r.mu.refused, size)
				}
				size -= entrySize(e)
				break
			}
		}
		taken++
	}
	if taken == 0 {
		return false
	}
	m.Entries = m.Entries[:taken]
	for share := range r.mu.left {
		r.mu.left[share] -= size
	}
	r.mu.underWay -= size
	r.mu.taken += size
	return true
}

// noQuorumHasRoom says that no quorum of the group has room, as far as is known here. Then leaders
// propose no data any more. What is under way has to arrive, for deletions come behind it.
func (g *Group) noQuorumHasRoom() bool {
	configuration := g.appliedState().Configuration
	for _, voters := range [...][]uint64{configuration.GetVoters(),
		configuration.GetVotersOutgoing()} {
		without := 0
		for _, id := range voters {
			if id := replicaID(id); id == g.Self() && g.host.disk.none.Load() ||
				id != g.Self() && g.host.peers.WithoutRoom(g.HostOf(id)) {
				without++
			}
		}
		if len(voters) > 0 && len(voters)-without < len(voters)/2+1 {
			return true
		}
	}
	return false
}

// bytes is how much may be taken in at present.
func (r *diskSpace) bytes() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(max(0, r.mu.left[group.NoShare]))
}

// shareOf is the share of the reserve that an entry may use.
func (g *Group) shareOf(e *peerpb.Entry) group.Share {
	switch machine, ok := g.machine.(group.Sharing); {
	case len(e.GetData()) == 0, raftpb.EntryType(e.GetType()) != raftpb.EntryNormal:
		return group.CollectionShare
	case ok:
		return machine.ShareOf(e.GetData())
	}
	return group.NoShare
}

// messageOverhead and entrySize are what a message takes without its entries, and with one.
func messageOverhead(m *peerpb.RaftMessage) int {
	return 64 + len(m.GetContext()) + len(m.GetSnapshot().GetConfState())
}

func entrySize(e *peerpb.Entry) int64 { return 64 + int64(len(e.GetData())) }

// hasData says whether a message brings entries with data.
func hasData(m *peerpb.RaftMessage) bool {
	if raftpb.MessageType(m.GetType()) != raftpb.MsgApp {
		return false
	}
	for _, e := range m.GetEntries() {
		if len(e.GetData()) > 0 {
			return true
		}
	}
	return false
}

// probeBytes is how much data a message may have at least that is sent to a host without room: such
// a host may still take a little.
const probeBytes = 64 << 10

// withheld says whether a message to a host is not worth sending, as that would not take it.
// Entries that it would not take are left out of one that is.
func (g *Group) withheld(host uint64, m *peerpb.RaftMessage) bool {
	h := g.host
	if !h.peers.AnyWithoutRoom() || !hasData(m) || !h.peers.WithoutRoom(host) {
		return false
	}
	_, _, c := h.peers.Status(host)
	sent, size, most := 0, int64(messageOverhead(m)), max(probeBytes, c.RoomBytes)
	for _, e := range m.GetEntries() {
		size += entrySize(e)
		if size > most && g.shareOf(e) == group.NoShare && (sent > 0 || !g.noQuorumHasRoom()) {
			break
		}
		sent++
	}
	m.Entries = m.Entries[:sent]
	return sent == 0
}
