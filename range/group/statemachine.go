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
	// Change: it was proposed as a change of the configuration.
	Change bool
	// Data is what was proposed. It is empty for the entry with which a leader opens its term; such
	// an entry still advances the applied index. The state machine may alias it until Apply
	// returns.
	Data []byte
}

// StateMachine is what a group replicates. All methods but StageSnapshot and DurableApplied are
// called one at a time.
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
	// LeadershipChanged tells of a new term, leader or role, in order. A replica that leads is told
	// that it does not any more before an entry of a later term is applied here, or a snapshot is
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

// Closer is implemented by state machines whose leaders close timestamps: nothing at or below one
// is written any more, by whichever leader. A closed timestamp that the log does not bring travels
// beside it, with an index: it counts for a replica that has applied the log up to that. The
// methods may run beside Apply, and must not block.
type Closer interface {
	// CloseIdle closes a timestamp, if this replica leads and nothing is in flight.
	CloseIdle() (closed hlc.Timestamp, index uint64, ok bool)
	// NoteClosed takes what a leader has closed.
	NoteClosed(closed hlc.Timestamp, index uint64)
	// Sleep says that the group is about to go to sleep under this replica, which has timestamps
	// closed for it together with others from now on. It returns false if that cannot be yet.
	Sleep(join Join) (may bool)
	// Unclosed says that nothing is closed for the group, though it leads: if it sleeps it is to be
	// woken, and sleep anew.
	Unclosed() bool
	// SleepsIn says what tells what is closed for a follower that sleeps; nil: nothing does any more.
	SleepsIn(Source)
}

// Join gives a group a place among those that sleep: nil if there is none now. The leader leads in
// a term, could close a timestamp by itself that lies the lag behind its clock, and has applied all
// of the log, up to the index.
type Join func(term uint64, closable hlc.Timestamp, lag time.Duration, index uint64) Place

// Place is a sleeping group's place among others.
type Place interface {
	// Closed is the wall time that is closed, as long as the group has the place.
	Closed() int64
	// Gone says that it has not any more.
	Gone() bool
	// Remove gives the place up. It returns what is closed; nothing more is, once it returns.
	Remove() int64
}

// Source tells what is closed for a replica that has applied its log up to an index.
type Source interface {
	Closed() (closed hlc.Timestamp, index uint64)
}

// Urgent is implemented by state machines with entries that followers are to apply at once, because
// requests wait for what comes of them: a partition that splits off is served when a majority of
// its replicas has come into being.
type Urgent interface {
	// Urgent looks at what was proposed. It may run beside Apply.
	Urgent(data []byte) bool
}

// Share says how much of the reserve of a disk without room an entry may use.
type Share uint8

// The shares, from the smallest to the largest.
const (
	// NoShare is that of entries that add data: leaders do not propose them any more, and what is
	// under way may use a little.
	NoShare Share = iota
	// DeletionShare is that of deletions by clients, and of what ends transactions.
	DeletionShare
	// CollectionShare is that of garbage collection, and of changes of partitions and replicas. It is
	// larger than that of deletions, so that no number of these keeps their room from being given
	// back.
	CollectionShare
	// Shares is how many shares there are.
	Shares = 3
)

// Sharing is implemented by state machines with entries that may use a share of the reserve. The
// entries of others have NoShare.
type Sharing interface {
	// ShareOf looks at what was proposed. It may run beside Apply.
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
	// Discard releases what staging took.
	Discard()
}

// Leadership is a group's view of which replica leads it.
type Leadership struct {
	Term uint64
	// Leader is 0 when none is known to lead.
	Leader keys.ReplicaID
	// IsLeader says that this replica leads at Term.
	IsLeader bool
}
