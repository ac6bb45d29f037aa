package host

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// maxInboxBytes bounds what peers can queue for one group. What comes beyond is dropped, and sent
// again by Raft.
const maxInboxBytes = 16 << 20

// maxInboxReads bounds the read-index requests that wait in one inbox.
const maxInboxReads = 100_000

// maxStaged bounds the snapshots that a group keeps until they are installed or refused: each takes
// the space of a partition. There is one that is being installed, one that follows it, and one of a
// former leader.
const maxStaged = 3

// inbox is what a group still has to take in. A method that puts something in returns whether the
// group is to be queued in its shard, and, if the group may be stopped by then, false for that.
type inbox struct {
	// budget is of the inboxes of all groups.
	budget *inboxBudget

	mu sync.Mutex
	contents
	// staged are the snapshots whose messages are among messages, or in the pass under way;
	// installing is how many more there are that Raft accepted and that are not installed yet.
	staged     []stagedWith
	installing int
	queued     bool
	stopped    bool
}

// contents are what one pass takes out of an inbox.
type contents struct {
	messages []*peerpb.RaftMessage
	// bytes is what messages take.
	bytes     int
	local     []*raftpb.Message
	changes   []changed
	proposals []proposal
	reads     []func(error)
	ops       []func(*Group)
}

// changed is a change of the configuration that the state machine has applied.
type changed struct {
	entry *raftpb.Entry
	now   group.Configuration
}

type proposal struct {
	term uint64
	data []byte
	// change, if not nil, is the configuration that this leads to.
	change *group.Configuration
}

// queueLocked says that the group is queued from now on, and whether it was not.
func (in *inbox) queueLocked() bool {
	queue := !in.queued
	in.queued = true
	return queue
}

// put changes the inbox.
func (in *inbox) put(change func(*inbox)) (queue, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false, false
	}
	change(in)
	return in.queueLocked(), true
}

// propose adds a proposal. inPass says that the group is not to be queued, but by stir.
func (in *inbox) propose(p proposal, inPass bool) (queue, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false, false
	}
	in.proposals = append(in.proposals, p)
	return !inPass && in.queueLocked(), true
}

// stir says whether there are proposals of a pass that are not stepped.
func (in *inbox) stir() (queue bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !in.stopped && len(in.proposals) > 0 && in.queueLocked()
}

// receive adds a message of a size, if there is room for the message. full says that there is none.
func (in *inbox) receive(m *peerpb.RaftMessage, size int, now int64,
	logBehind bool) (queue, full bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false, false
	}
	entries := len(m.GetEntries()) > 0
	if in.bytes+size > maxInboxBytes && in.bytes > 0 || entries && logBehind ||
		!in.budget.fits(size, entries, now) {
		return false, true
	}
	in.bytes += size
	in.budget.held.Add(int64(size))
	in.messages = append(in.messages, m)
	return in.queueLocked(), false
}

// answer adds answers of the group's storage.
func (in *inbox) answer(local []*raftpb.Message) (queue bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false
	}
	in.local = append(in.local, local...)
	return in.queueLocked()
}

// take takes out everything for a pass. tick says that the pass is a tick: the group may be queued
// for another one.
func (in *inbox) take(tick bool) (c contents, stopped bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	c = in.contents
	in.contents = contents{}
	in.budget.held.Add(-int64(c.bytes))
	if !tick || in.queued {
		in.queued = false
	}
	return c, in.stopped
}

// stop lets nothing more in, and takes out everything; false if it has done so before.
func (in *inbox) stop() (c contents, staged []stagedWith, first bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	first = !in.stopped
	in.stopped = true
	c, staged = in.contents, in.staged
	in.contents, in.staged = contents{}, nil
	in.budget.held.Add(-int64(c.bytes))
	return c, staged, first
}

func (in *inbox) isStopped() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.stopped
}

// stagedWith remembers the message that a staged snapshot came with. It stays until Raft has had
// that message: another stream for the same group, of a former leader for one, may end at any
// moment.
type stagedWith struct {
	group.Staged
	message *peerpb.RaftMessage
}

// fullOfSnapshots says whether the group can keep no further snapshot.
func (in *inbox) fullOfSnapshots() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.fullOfSnapshotsLocked()
}

func (in *inbox) fullOfSnapshotsLocked() bool { return len(in.staged)+in.installing >= maxStaged }

// stage adds a staged snapshot and its message, unless there are too many.
func (in *inbox) stage(s stagedWith) (full, queue, ok bool) {
	queue, ok = in.put(func(*inbox) {
		if full = in.fullOfSnapshotsLocked(); full {
			return
		}
		in.staged = append(in.staged, s)
		in.messages = append(in.messages, s.message)
	})
	return full, queue, ok
}

// takeStagedLocked hands over a staged snapshot that fits; nil if there is none.
func (in *inbox) takeStagedLocked(fits func(*peerpb.RaftMessage) bool) group.Staged {
	for i, s := range in.staged {
		if fits(s.message) {
			in.staged = slices.Delete(in.staged, i, i+1)
			return s.Staged
		}
	}
	return nil
}

// takeForInstall hands over the staged snapshot of an index; nil if it is not there. It counts
// until installed.
func (in *inbox) takeForInstall(index uint64) group.Staged {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.takeStagedLocked(
		func(m *peerpb.RaftMessage) bool { return m.GetSnapshot().GetIndex() == index },
	)
	if s != nil {
		in.installing++
	}
	return s
}

// installed notes that a snapshot that was taken is installed.
func (in *inbox) installed() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.installing--
}

// discardStaged drops the staged snapshots that Raft did not want: they had their messages in this
// pass.
func (in *inbox) discardStaged(messages []*peerpb.RaftMessage) {
	for _, m := range messages {
		if raftpb.MessageType(m.GetType()) != raftpb.MsgSnap {
			continue
		}
		in.mu.Lock()
		s := in.takeStagedLocked(func(other *peerpb.RaftMessage) bool { return other == m })
		in.mu.Unlock()
		if s != nil {
			s.Discard()
		}
	}
}

// inboxBudget bounds what the inboxes of all groups together hold.
type inboxBudget struct {
	// limit is Config.MaxInboxBytes.
	limit int64
	// held is what the messages in all inboxes take.
	held atomic.Int64
	// largeRefused is when a large message with entries found no room, monotonic; 0: none waits.
	largeRefused atomic.Int64
}

// largeComesAgain is for how long room is left for a large message that was refused. Its sender is
// told by the next heartbeat that it is missing.
const largeComesAgain = time.Second

// fits says whether a message can be taken in. Raft sends again what is dropped. Entries are
// dropped first: what keeps leaders in office, and acknowledges what is stored, frees memory.
func (b *inboxBudget) fits(size int, entries bool, now int64) bool {
	limit, held := b.limit, b.held.Load()
	if !entries {
		return held+int64(size) <= limit+limit/4
	}
	// A message that takes more than half of the room would never find that beside others. It gets in
	// while others have half, and they get no more until it has come again.
	half := limit / 2
	if int64(size) > half {
		if held > half {
			b.largeRefused.Store(max(now, 1))
			return false
		}
		b.largeRefused.Store(0)
		return true
	}
	if refused := b.largeRefused.Load(); refused > 0 && now-refused < int64(largeComesAgain) {
		limit = half
	}
	return held+int64(size) <= limit
}
