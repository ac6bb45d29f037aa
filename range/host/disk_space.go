package host

import (
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A follower whose disk is short of space stores no more of the entries that it is sent. Otherwise
// the leader, which has a quorum without it, would fill the rest of the follower's disk. That rest
// is needed: by the engines for flushes and compactions, by the core for its own log, and by the
// removal of a keyspace for its commands. To the leader such a follower looks slow: messages with
// entries are lost, heartbeats are answered. When the disk has space again, the answer to the next
// heartbeat shows which entries are missing, and the leader sends them.
//
// The bytes that are taken in are bounded before the space ends, so that what is under way then
// still fits: a follower that was away is sent megabytes at once, by the leaders of many groups. A
// message needs copies times its size on the disk, and this much must be free above the kept part
// of the reserve. The rest of the reserve is for the case that all followers of a leader run out of
// space at the same time: the leader's last entries must still be committed. So while no quorum has
// space, followers take entries of data down to a lower bound (Room.UnderWay), which leaves space
// for deletions, because a deletion comes behind those entries in the log. Entries without data,
// with which a leadership begins, are always taken.
//
// Entries that lead to more free space may use more of the reserve (group.Share). Otherwise a full
// disk could never be emptied.

// copies is how many times an entry is on the disk in the worst case: in the log's file, in a table
// of the log, and in a table of the state.
const copies = 3

// diskSpace bounds how many bytes this host may still store.
type diskSpace struct {
	// none and takesShare are sent to the peers: see Room. bounded is true while left limits what
	// is taken.
	none, bounded atomic.Bool
	takesShare    atomic.Uint32

	mu struct {
		sync.Mutex
		// left is how many bytes of entries of each share may still be taken, underWay how many
		// bytes of data entries while no quorum has room. taken counts the bytes of all entries
		// taken since the last SetRoom.
		left            [group.Shares]int64
		underWay, taken int64
		// refused is the size of the largest message that was refused; 0 if there is room for it
		// now.
		refused int64
	}
}

// Unbounded stands for more space than can be used before the disk is looked at again.
const Unbounded = math.MaxInt64

// Room says how much the disk may still take.
type Room struct {
	// None says that the disk is below its reserve.
	None bool
	// Bytes is, for each share, how many bytes of the disk entries of that share may take,
	// including entries that are under way to the log. Unbounded: no limit.
	Bytes [group.Shares]int64
	// UnderWay is how many bytes of the disk may be taken for entries of data that leaders proposed
	// before a quorum ran out of room.
	UnderWay int64
	// Takes is the smallest share whose entries a disk below its reserve still takes; NoShare: it
	// takes none.
	Takes group.Share
}

// SetRoom sets how much the disk may still take. Pings tell the peers. The owner calls it at each
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

// UnappliedBytes estimates how many bytes of entries are in the logs and not applied yet.
func (h *Host) UnappliedBytes() (bytes int64) {
	h.Groups(func(g *Group) { bytes += g.storage.BytesAbove(g.appliedState().Index) })
	return bytes
}

// takes reserves space for a message to a group. It cuts the message's entries to the first ones
// for which there is room, and returns false if there is room for none of them.
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

// noQuorumHasRoom reports whether, as far as this host knows, no quorum of the group has room.
// Leaders then propose no more data. Entries that are under way must still arrive, because
// deletions come behind them in the log.
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

// bytes returns how many bytes of data entries may be taken now.
func (r *diskSpace) bytes() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return uint64(max(0, r.mu.left[group.NoShare]))
}

// shareOf returns the share of the reserve that an entry may use.
func (g *Group) shareOf(e *peerpb.Entry) group.Share {
	switch machine, ok := g.machine.(group.Sharing); {
	case len(e.GetData()) == 0, raftpb.EntryType(e.GetType()) != raftpb.EntryNormal:
		return group.CollectionShare
	case ok:
		return machine.ShareOf(e.GetData())
	}
	return group.NoShare
}

// messageOverhead is the size of a message without its entries, and entrySize the size of one
// entry.
func messageOverhead(m *peerpb.RaftMessage) int {
	return 64 + len(m.GetContext()) + len(m.GetSnapshot().GetConfState())
}

func entrySize(e *peerpb.Entry) int64 { return 64 + int64(len(e.GetData())) }

// hasData reports whether a message brings entries with data.
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

// probeBytes is the most data that is sent to a host without room in any case: such a host may
// still have space for a little.
const probeBytes = 64 << 10

// withheld reports whether a message need not be sent, because its receiver would take none of its
// entries. Otherwise it removes the entries that the receiver would not take.
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
