package host

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Requests for votes that come before their replica.
//
// A partition that splits off begins on each node when the split is applied there, which is a
// moment earlier on one than on another. If the first replica asks another one for its vote in
// between, the request is held, and the replica hears it when it opens. Otherwise the first one
// would have to ask again, without knowing when. A leader asks again by itself, so what it sends is
// not held.

const (
	// maxPendingGroups is for how many groups requests are held, maxPendingOfGroup how many of one
	// group, and maxPendingBytes the size of the largest.
	maxPendingGroups, maxPendingOfGroup, maxPendingBytes = 256, 4, 4 << 10
	// pendingVoteLife is for how long a request is held, in nanoseconds.
	pendingVoteLife = int64(1e9)
)

// pendingVote is a request that is held, and when it came.
type pendingVote struct {
	from    uint64
	message *peerpb.RaftMessage
	at      int64
}

// pendingVotes are the requests that are held. The zero value holds none.
type pendingVotes struct {
	mu sync.Mutex
	of map[keys.PartitionID][]pendingVote
}

// hold holds a request for a vote. It returns false if the message is none, or there is no room.
func (e *pendingVotes) hold(from uint64, m *peerpb.RaftMessage, now int64) bool {
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgPreVote, raftpb.MsgVote:
	default:
		return false
	}
	if m.SizeVT() > maxPendingBytes {
		return false
	}
	id := keys.PartitionID(m.GetGroup())
	e.mu.Lock()
	defer e.mu.Unlock()
	of, known := e.of[id]
	if !known && len(e.of) >= maxPendingGroups {
		e.forgetLocked(now)
		if len(e.of) >= maxPendingGroups {
			return false
		}
	}
	if len(of) == maxPendingOfGroup {
		of = append(of[:0], of[1:]...)
	}
	if e.of == nil {
		e.of = make(map[keys.PartitionID][]pendingVote)
	}
	// A copy: the message shares memory with all that came with it.
	e.of[id] = append(of, pendingVote{from, proto.Clone(m).(*peerpb.RaftMessage), now})
	return true
}

// forgetLocked drops the groups of which nothing came lately.
func (e *pendingVotes) forgetLocked(now int64) {
	for id, of := range e.of {
		if now-of[len(of)-1].at > pendingVoteLife {
			delete(e.of, id)
		}
	}
}

// take gives back what is held for a group, the earliest first.
func (e *pendingVotes) take(id keys.PartitionID, now int64) (messages []pendingVote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.of[id] {
		if now-m.at <= pendingVoteLife {
			messages = append(messages, m)
		}
	}
	delete(e.of, id)
	return messages
}

// hearPendingVotes has a group that was opened take what came before it. h.mu is held: what comes
// from now on finds the group.
func (h *Host) hearPendingVotes(g *Group) {
	for _, v := range h.pendingVotes.take(g.ID(), h.now()) {
		if g.addressed(v.from, v.message) && g.receive(v.message) {
			g.shard.enqueue(g)
		}
	}
}
