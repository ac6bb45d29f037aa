package host

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Requests for votes that arrive before their replica.
//
// A partition that splits off starts on each node when the node applies the split, at slightly
// different times. If the first replica asks another node for a vote before that node has applied
// the split, the request is held, and the replica gets it when it opens. Otherwise the first
// replica would have to ask again without knowing when. Messages of a leader are not held, because
// a leader repeats them by itself.

const (
	// maxPendingGroups bounds the groups for which requests are held, maxPendingOfGroup the
	// requests of one group, and maxPendingBytes the size of one request.
	maxPendingGroups, maxPendingOfGroup, maxPendingBytes = 256, 4, 4 << 10
	// pendingVoteLife is how long a request is held, in nanoseconds.
	pendingVoteLife = int64(1e9)
)

// pendingVote is a request that is held, and when it came.
type pendingVote struct {
	from    uint64
	message *peerpb.RaftMessage
	at      int64
}

// pendingVotes holds such requests. The zero value is empty.
type pendingVotes struct {
	mu sync.Mutex
	of map[keys.PartitionID][]pendingVote
}

// hold holds a request for a vote. It returns false if the message is not such a request, or there
// is no room.
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

// forgetLocked drops the groups whose requests are all older than pendingVoteLife.
func (e *pendingVotes) forgetLocked(now int64) {
	for id, of := range e.of {
		if now-of[len(of)-1].at > pendingVoteLife {
			delete(e.of, id)
		}
	}
}

// take takes out what is held for a group, the earliest first.
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

// hearPendingVotes gives a newly opened group the requests that came before it. h.mu is held, so
// requests that come from now on find the group.
func (h *Host) hearPendingVotes(g *Group) {
	for _, v := range h.pendingVotes.take(g.ID(), h.now()) {
		if g.addressed(v.from, v.message) && g.receive(v.message) {
			g.shard.enqueue(g)
		}
	}
}
