package host

import (
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
// What is under way when the room ends is still taken, so that a leader whose followers all run out
// of room at the same time gets its last entries committed; and so are entries without data, with
// which a leadership begins.

// room is whether this host stores entries.
type room struct {
	none atomic.Bool
	// spare is how many bytes of entries are still taken.
	spare atomic.Int64
}

// SetNoRoom says whether the disk is below its reserve; the peers are told in pings. While it is,
// entries of so many bytes together are still taken, and then none with data any more.
func (h *Host) SetNoRoom(none bool, spare int64) {
	if none && !h.room.none.Load() {
		h.room.spare.Store(spare)
	}
	h.room.none.Store(none)
}

// takes says whether a message may be taken in.
func (r *room) takes(m *peerpb.RaftMessage, size int) bool {
	if !r.none.Load() || !hasData(m) {
		return true
	}
	return r.spare.Add(-int64(size)) >= 0
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
