package host

import (
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

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
// at the same time gets its last entries committed. Entries without data, with which a leadership
// begins, are always taken.

// copies is how often an entry is on the disk in the worst case: in the log's file, in a table of
// the log, and in one of the state.
const copies = 3

// room is what this host has room for.
type room struct {
	// none is what peers are told. bounded: left counts.
	none, bounded atomic.Bool

	mu struct {
		sync.Mutex
		// left is how many bytes of entries may still be taken, and taken how many were since
		// SetRoom.
		left, taken int64
		// refused is the size of a message that was refused; 0 if there is room for it now.
		refused int64
	}
}

// Unbounded is a disk with more room than what can come before it is looked at again.
const Unbounded = math.MaxInt64

// SetRoom says whether the disk is below its reserve, of which the peers are told in pings, and how
// many bytes of the disk may be taken for entries in all, for those too that are under way to the
// log. It is called with each tick.
func (h *Host) SetRoom(none bool, bytes int64) {
	r := &h.room
	r.mu.Lock()
	defer r.mu.Unlock()
	// What was taken a moment ago may be between the inbox and the log.
	underWay := max(r.mu.taken, h.inboxBytes.Load()+h.log.Pending())
	r.mu.taken = 0
	if bytes == Unbounded {
		r.mu.left, r.mu.refused = 0, 0
	} else {
		r.mu.left = bytes/copies - underWay
	}
	if r.mu.left >= r.mu.refused {
		r.mu.refused = 0
	}
	r.bounded.Store(bytes != Unbounded)
	// A leader must not count on a follower that has no room for what it is sent.
	r.none.Store(none || r.mu.refused > 0)
}

// UnappliedBytes is about how much is in the logs and not applied yet.
func (h *Host) UnappliedBytes() (bytes int64) {
	h.Groups(func(g *Group) { bytes += g.storage.BytesAbove(g.appliedState().Index) })
	return bytes
}

// takes says whether a message may be taken in.
func (r *room) takes(m *peerpb.RaftMessage, size int) bool {
	if !r.bounded.Load() || !hasData(m) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if int64(size) > r.mu.left {
		r.mu.refused = max(r.mu.refused, int64(size))
		return false
	}
	r.mu.left -= int64(size)
	r.mu.taken += int64(size)
	return true
}

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

// probeBytes is how much data a message may have that is sent to a host without room: such a host
// may still take a little.
const probeBytes = 64 << 10

// withheld says whether a message to a host is not worth sending, as that would not take it.
func (h *Host) withheld(host uint64, m *peerpb.RaftMessage) bool {
	if h.peers.withoutRoom.Load() == 0 || !hasData(m) || !h.PeerWithoutRoom(host) {
		return false
	}
	size := 0
	for _, e := range m.GetEntries() {
		size += len(e.GetData())
	}
	return size > probeBytes
}
