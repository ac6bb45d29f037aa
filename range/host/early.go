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
	// maxEarlyGroups is for how many groups requests are held, maxEarlyOfGroup how many of one, and
	// maxEarlyBytes how much one may take.
	maxEarlyGroups, maxEarlyOfGroup, maxEarlyBytes = 256, 4, 4 << 10
	// earlyFor is for how long a message is held, in nanoseconds.
	earlyFor = int64(1e9)
)

// earlyMessage is a message that is held, and when it came.
type earlyMessage struct {
	from    uint64
	message *peerpb.RaftMessage
	at      int64
}

// earlyMessages are the messages that are held. The zero value holds none.
type earlyMessages struct {
	mu sync.Mutex
	of map[keys.PartitionID][]earlyMessage
}

// hold holds a request for a vote. It returns false if the message is none, or there is no room.
func (e *earlyMessages) hold(from uint64, m *peerpb.RaftMessage, now int64) bool {
	switch raftpb.MessageType(m.GetType()) {
	case raftpb.MsgPreVote, raftpb.MsgVote:
	default:
		return false
	}
	if m.SizeVT() > maxEarlyBytes {
		return false
	}
	id := keys.PartitionID(m.GetGroup())
	e.mu.Lock()
	defer e.mu.Unlock()
	of, known := e.of[id]
	if !known && len(e.of) >= maxEarlyGroups {
		e.forgetLocked(now)
		if len(e.of) >= maxEarlyGroups {
			return false
		}
	}
	if len(of) == maxEarlyOfGroup {
		of = append(of[:0], of[1:]...)
	}
	if e.of == nil {
		e.of = make(map[keys.PartitionID][]earlyMessage)
	}
	// A copy: the message shares memory with all that came with it.
	e.of[id] = append(of, earlyMessage{from, proto.Clone(m).(*peerpb.RaftMessage), now})
	return true
}

// forgetLocked drops the groups of which nothing came lately.
func (e *earlyMessages) forgetLocked(now int64) {
	for id, of := range e.of {
		if now-of[len(of)-1].at > earlyFor {
			delete(e.of, id)
		}
	}
}

// take gives back what is held for a group, the earliest first.
func (e *earlyMessages) take(id keys.PartitionID, now int64) (messages []earlyMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.of[id] {
		if now-m.at <= earlyFor {
			messages = append(messages, m)
		}
	}
	delete(e.of, id)
	return messages
}

// hearEarly has a group that was opened take what came before it. h.mu is held: what comes from now
// on finds the group.
func (h *Host) hearEarly(g *Group) {
	for _, early := range h.early.take(g.id, h.now()) {
		if g.addressed(early.from, early.message) && g.receive(early.message) {
			g.shard.enqueue(g)
		}
	}
}
