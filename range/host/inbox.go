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

// maxInboxBytes bounds what peers can queue for one group. Messages beyond are dropped, and Raft
// sends them again.
const maxInboxBytes = 16 << 20

// maxInboxReads bounds the read-index requests that wait in one inbox.
const maxInboxReads = 100_000

// maxStaged bounds the snapshots that a group keeps until they are installed or refused, each of
// the size of a partition: one that is being installed, one that follows it, and one of a former
// leader.
const maxStaged = 3

// inbox holds what a group's next pass takes in. Each method that adds something returns whether
// the caller must queue the group in its shard; where the group may have been stopped, the method
// returns false for a stopped group.
type inbox struct {
	// budget bounds the inboxes of all groups together.
	budget *inboxBudget

	mu sync.Mutex
	contents
	// staged lists the snapshots whose messages wait in messages or are in the pass under way.
	// installing counts the further snapshots that Raft has accepted and that are not installed
	// yet.
	staged     []stagedWith
	installing int
	queued     bool
	stopped    bool
}

// contents are what one pass takes out of an inbox.
type contents struct {
	messages []*peerpb.RaftMessage
	// bytes is the size of messages.
	bytes     int
	local     []*raftpb.Message
	changes   []changed
	proposals []proposal
	reads     []func(error)
	ops       []func(*Group)
}

// changed is an applied entry that may have changed the configuration.
type changed struct {
	entry *raftpb.Entry
	now   group.Configuration
}

type proposal struct {
	term uint64
	data []byte
	// change, if not nil, makes this a proposal to change the configuration, and is the new
	// configuration.
	change *group.Configuration
}

// queueLocked marks the group as queued, and returns whether the caller must queue it.
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

// propose adds a proposal. With inPass the group is not queued now: stir queues it later.
func (in *inbox) propose(p proposal, inPass bool) (queue, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false, false
	}
	in.proposals = append(in.proposals, p)
	return !inPass && in.queueLocked(), true
}

// stir reports whether the group has proposals that were added inPass and not stepped, and marks it
// as queued if so.
func (in *inbox) stir() (queue bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !in.stopped && len(in.proposals) > 0 && in.queueLocked()
}

// receive adds a message of size bytes. full is true if there is no room for it.
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

// take takes out everything for a pass. tick says that the pass is a tick, in which the group may
// still be queued for another pass.
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

// stop closes the inbox and takes out everything; first is false if the inbox was closed before.
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

// stagedWith is a staged snapshot and the message that came with it. The snapshot stays until Raft
// has processed that message: another stream for the same group, such as a former leader's, may end
// at any moment.
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

// takeForInstall hands over the staged snapshot of an index, or nil. The snapshot counts as
// installing until installed is called.
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

// installed notes that a snapshot taken by takeForInstall is installed.
func (in *inbox) installed() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.installing--
}

// discardStaged drops the staged snapshots that Raft did not accept: their messages were in this
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
	// held is the size of the messages in all inboxes.
	held atomic.Int64
	// largeRefused is the monotonic time at which a large message with entries was last refused; 0:
	// no large message waits.
	largeRefused atomic.Int64
}

// largeComesAgain is how long room is kept for a large message that was refused. The answer to the
// next heartbeat makes its sender send it again.
const largeComesAgain = time.Second

// fits reports whether a message can be taken in. Raft sends dropped messages again. Messages with
// entries are dropped first: the others keep leaders in office and acknowledge entries, which frees
// memory.
func (b *inboxBudget) fits(size int, entries bool, now int64) bool {
	limit, held := b.limit, b.held.Load()
	if !entries {
		return held+int64(size) <= limit+limit/4
	}
	// A message of more than half of the limit would never find room beside others. It is accepted
	// while the others hold at most half, and they get no more than half until it has come again.
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
