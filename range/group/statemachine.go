package group

import (
	"context"
	"io"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Entry is one committed entry of a group's log, as a state machine sees it.
type Entry struct {
	Index uint64
	Term  uint64
	// Change is set if the entry was proposed as a change of the configuration.
	Change bool
	// Data is what was proposed. It is empty for the entry with which a leader opens its term; such
	// an entry still advances the applied index. The state machine may alias it until Apply
	// returns.
	Data []byte
	// Times say how long the entry took to get here, on a leader.
	Times Times
}

// Times are times of a log entry, with monotonic readings. Unknown times are zero: on followers,
// and for entries that reached the log long before they are applied.
type Times struct {
	// Writing is when the log of this host began to write the entry, Synced when the write was
	// synced. Applying is when the state machine began to apply the entry, which was committed by
	// then.
	Writing, Synced, Applying time.Time
}

// StateMachine is the replicated state. All methods but StageSnapshot and DurableApplied are called
// one at a time.
type StateMachine interface {
	// Applied returns the index and term of the last applied entry, read from the state database
	// when the group is opened; zero for a new group.
	Applied() (index, term uint64)
	// Apply applies entries in order. The applied index and term are written in the same batch as
	// what they describe. An error marks the group failed: it applies nothing more until it is
	// opened anew.
	Apply(entries []Entry) error
	// DurableApplied returns the applied index that would be found after a crash at this moment.
	// The log is truncated only at or below it.
	DurableApplied() (uint64, error)
	// Snapshot returns a cheap handle of the state as of some applied index; streaming it is slow
	// and done elsewhere.
	Snapshot() (Snapshot, error)
	// StageSnapshot reads and verifies a whole snapshot. Nothing of it is visible before Install.
	// It runs beside Apply.
	StageSnapshot(ctx context.Context, index, term uint64, r io.Reader) (Staged, error)
	// LeadershipChanged reports a new term, leader or role, in order. A replica that led is told of
	// the end of its leadership before an entry of a later term is applied here, or a snapshot is
	// installed. It must not block.
	LeadershipChanged(Leadership)
}

// Configured is implemented by state machines, and their snapshots and staged snapshots, whose
// groups change their replicas. The configuration is as of the last applied entry, or of the
// snapshot, and is stored with it. A state machine changes it by applying an entry that was
// proposed as a change, or by installing a snapshot, and by nothing else.
type Configured interface {
	Configuration() Configuration
}

// Closer is implemented by state machines whose leaders close timestamps: no leader writes at or
// below a closed timestamp any more. A closed timestamp that is not carried by the log travels
// beside it, with an index: it counts for a replica that has applied the log up to that index. The
// methods may run at the same time as Apply, and must not block.
type Closer interface {
	// CloseIdle closes a timestamp, if this replica leads and nothing is in flight.
	CloseIdle() (closed hlc.Timestamp, index uint64, ok bool)
	// NoteClosed takes a timestamp that a leader has closed.
	NoteClosed(closed hlc.Timestamp, index uint64)
	// Sleep is called when the group is about to sleep under this replica. From then on timestamps
	// are closed for the group together with other sleeping groups, in the place that join returns.
	// It returns false if the group must stay awake for now.
	Sleep(join Join) (may bool)
	// Unclosed reports whether no timestamps are closed for the group although this replica leads.
	// If the group sleeps, the host wakes it so that it can fall asleep anew.
	Unclosed() bool
	// SleepsIn gives a follower that sleeps the source of its closed timestamps; nil: there is none
	// any more.
	SleepsIn(Source)
}

// Join adds a group to those for which timestamps are closed while they sleep, and returns its
// place; nil if the group cannot join now. The leader leads in term, could close the timestamp
// closable by itself, which is its clock less lag, and has applied all of the log, up to index.
type Join func(term uint64, closable hlc.Timestamp, lag time.Duration, index uint64) Place

// Place is a sleeping group's place among the groups that sleep.
type Place interface {
	// Closed returns the wall time that is closed while the group has the place.
	Closed() int64
	// Gone reports whether the group has lost the place.
	Gone() bool
	// Remove gives the place up, and returns the wall time that is closed. No higher one is closed
	// after it returns.
	Remove() int64
}

// Source returns the timestamp that is closed for a replica that has applied its log up to an
// index.
type Source interface {
	Closed() (closed hlc.Timestamp, index uint64)
}

// Urgent is implemented by state machines with entries that followers must apply at once because
// requests wait for the effect: a new partition of a split is served when a majority of its
// replicas exists.
type Urgent interface {
	// Urgent judges the data of a proposal. It may run at the same time as Apply.
	Urgent(data []byte) bool
}

// Share says how much of the reserve an entry may use on a disk without other free space.
type Share uint8

// The shares, from the smallest to the largest.
const (
	// NoShare is for entries that add data. Leaders propose no more of them, and those under way
	// may use a little of the reserve.
	NoShare Share = iota
	// DeletionShare is for deletions by clients, and for entries that end transactions.
	DeletionShare
	// CollectionShare is for garbage collection, and for changes of partitions and replicas. It is
	// larger than DeletionShare, so that deletions, however many, leave the space that garbage
	// collection needs to free theirs.
	CollectionShare
	// Shares is the number of shares.
	Shares = 3
)

// Sharing is implemented by state machines with entries that may use a share of the reserve.
// Without it all entries have NoShare.
type Sharing interface {
	// ShareOf judges the data of a proposal. It may run at the same time as Apply.
	ShareOf(data []byte) Share
}

// Snapshot is a consistent state to be streamed. Close releases it; Write may be called once.
type Snapshot interface {
	Index() uint64
	Term() uint64
	Write(ctx context.Context, w io.Writer) error
	Close() error
}

// Staged is a received and verified snapshot. Exactly one of its methods is called, once.
type Staged interface {
	// Install replaces the state atomically, and is durable when it returns.
	Install() error
	// Discard releases what staging has stored.
	Discard()
}

// Leadership is a group's view of which replica leads it.
type Leadership struct {
	Term uint64
	// Leader is 0 when no leader is known.
	Leader keys.ReplicaID
	// IsLeader says that this replica leads at Term.
	IsLeader bool
}
