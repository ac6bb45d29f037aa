package store

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/space"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Group is what the store needs of its Raft group; host.Group has it.
type Group interface {
	// Propose appends data to the log if this replica still leads at term when its turn comes;
	// otherwise LeadershipChanged tells. It does not block, and it takes over data.
	Propose(term uint64, data []byte) error
	// ProposeChange is Propose for an entry that changes the configuration, which is next when it is
	// applied. One that is not a step away, or would leave the leader out, ends the leadership.
	ProposeChange(term uint64, data []byte, next group.Configuration) error
	// ReadIndex calls done(nil) once the local state has everything that was committed anywhere
	// before the call.
	ReadIndex(done func(error))
	// Lease says whether this replica leads, at which term, and that no other can lead at this
	// moment.
	Lease() (term uint64, ok bool)
	// Committed is up to where this replica knows the log to be committed, at least as far as it is
	// applied. A leader knows it before any other member does.
	Committed() uint64
}

// Config is what a Store is made of. State must be set.
type Config struct {
	// State is the core's state database. The store has the local span of its partition to itself,
	// and does not close the database.
	State *engine.State
	// Partition is the store's Raft group, and says where in the database the store is. Default
	// keys.CorePartition.
	Partition keys.PartitionID
	// Name is what errors and logs call the store. Default "the core's store".
	Name string
	// Group can be given later, with SetGroup.
	Group Group
	// Peers reaches the other members, for commands and reads that come in at a member that does not
	// lead. nil: only the leader takes them.
	Peers Peers
	// Founding are the members with which the store was founded. They count until the state has a
	// record of members, whose version is higher than theirs. nil for a member that was added later,
	// and is filled by a snapshot.
	Founding *storepb.Members

	// History is how many revisions the leader keeps when it compacts, HistoryFor for how long it
	// keeps each that was the newest. What either says may go, goes. Default, if neither is set:
	// 10,000 revisions. Negative HistoryFor: everything is kept, until a command compacts it.
	History    uint64
	HistoryFor time.Duration
	// MaxPending and MaxPendingBytes bound the commands whose outcome is open; Do waits for room.
	// Defaults 1,024 and 64 MiB, which is well below what Raft lets a leader have without a quorum.
	MaxPending      int
	MaxPendingBytes int64
	// MaxTouched is how many keys the ranges of one command may read, compare or delete together, and
	// how many a lease may have, which all go when it ends. Default DefaultMaxTouched. The leader's
	// counts: Apply does what is in the log.
	MaxTouched int
	// GroupCommands has commands that come while others are on their way share an entry of the log.
	// All members must know groupFormat.
	GroupCommands bool
	// MembersKnow is up to which format all members are known to know commands, as long as
	// Store.MembersKnow has not said so. Default NewestFormat.
	MembersKnow uint32
	// CheckpointAfter is how much of a lease's term passes before the leader notes in the log how
	// much is left, so that the next leader does not begin anew. Default 5 min.
	CheckpointAfter time.Duration
	// MaxWatchers bounds the watches of all streams together; Watch is a stream with one. One that
	// nothing happens to takes some 140 bytes, and 130 for each distinct span. Default 10,000.
	MaxWatchers int
	// Memory bounds what the store takes of memory. Zero fields take the defaults.
	Memory Memory
	// watch is for tests; nil: watch.DefaultLimits.
	watch *watch.Limits
	// newest is for tests; nil: newest.DefaultLimits.
	newest *newest.Limits
	// keyCounts is for tests; nil: keycount.DefaultLimits.
	keyCounts *keycount.Limits

	// Monotonic counts leases down. Default: hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	// Random seeds the name by which this process knows its own commands.
	Random     io.Reader
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (c *Config) ensureDefaults() error {
	if c.Partition == 0 {
		c.Partition = keys.CorePartition
	}
	if c.Name == "" {
		c.Name = "the core's store"
	}
	if c.State == nil || c.Random == nil {
		return fmt.Errorf("open %s: State and Random must be set", c.Name)
	}
	if c.History == 0 && c.HistoryFor == 0 {
		c.History = 10_000
	}
	if c.History > math.MaxInt64 {
		return fmt.Errorf("open %s: a history of %d revisions is too long", c.Name, c.History)
	}
	if c.MaxPending <= 0 {
		c.MaxPending = 1024
	}
	if c.MaxPendingBytes <= 0 {
		c.MaxPendingBytes = 64 << 20
	}
	c.Memory.ensureDefaults()
	if c.MaxTouched <= 0 {
		c.MaxTouched = DefaultMaxTouched
	}
	if c.MembersKnow == 0 {
		c.MembersKnow = NewestFormat
	}
	if c.CheckpointAfter <= 0 {
		c.CheckpointAfter = 5 * time.Minute
	}
	if c.MaxWatchers <= 0 {
		c.MaxWatchers = 10_000
	}
	if c.Monotonic == nil {
		c.Monotonic = hlc.SystemMonotonic()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Store is one member's copy of the core's store. It implements group.StateMachine; its other
// methods may be called from any goroutine.
type Store struct {
	config Config
	layout *layout
	// origin names this process in its commands.
	origin  uint64
	metrics *metrics
	hub     *watch.Hub
	lessor  *lease.Lessor
	machine machine

	revision, compacted atomic.Uint64
	// membersKnow is the format that Store.MembersKnow was told last.
	membersKnow atomic.Uint32
	// importing: an import is under way, so that nothing is read and no lease counts down.
	importing     atomic.Bool
	members       currentMembers
	authority     atomic.Pointer[authority.State]
	authorityNews news
	alarms        atomic.Pointer[[]*storepb.Alarm]
	// space has the size of the store and its quota, and alarmOf is Quota.Member.
	space   space.Ledger
	alarmOf atomic.Uint64
	// index is that of the newest entry that is applied and visible.
	index atomic.Uint64
	// requests numbers the commands of this process.
	requests atomic.Uint64

	ctx     context.Context
	cancel  context.CancelFunc
	wake    chan struct{} // for keep
	long    chan struct{} // for the compactor
	grouped chan struct{} // for the proposer
	room    *room         // for commands whose outcome is open
	indexes readIndexes
	// renewals are those that go to the leader.
	renewals leaseRenewals
	large    largeAnswers
	counts   rangeCounts
	// blocks counts keys, and remembers where there are none. Apply follows it before it commits, so
	// that no reader is ahead of it.
	blocks *keycount.Blocks
	// newest is what Apply remembers of the newest versions; filling are its filters to be filled.
	newest  *newest.Cache
	filling chan *newest.Filling
	// noting is held while it is decided what leases have left, and proposed.
	noting  sync.Mutex
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		group       Group
		leadership  group.Leadership
		appliedTerm uint64
		pending     map[commandID]*pending
		forwarded   forwarded
		grouping    grouping
		// reaching wait for an entry to be applied.
		reaching []reaching
		closed   bool
		// changed is closed when the leadership does, and replaced.
		changed chan struct{}
		// compacting is closed when all was removed that a compaction has left; nil: that is so.
		compacting chan struct{}
		// readers counts the open iterators, which have to be gone before the database is closed.
		readers sync.WaitGroup
	}
}

var (
	_ group.StateMachine = (*Store)(nil)
	_ group.Configured   = (*Store)(nil)
)

// New opens the store on what the database has.
func New(config Config) (*Store, error) {
	if err := config.ensureDefaults(); err != nil {
		return nil, err
	}
	var origin [8]byte
	if _, err := io.ReadFull(config.Random, origin[:]); err != nil {
		return nil, fmt.Errorf("open %s: random source: %w", config.Name, err)
	}
	s := &Store{
		config:  config,
		layout:  newLayout(config.Partition),
		origin:  binary.BigEndian.Uint64(origin[:]) | 1, // not 0, which is a command of no process
		lessor:  lease.New(config.Monotonic, config.CheckpointAfter),
		wake:    make(chan struct{}, 1),
		long:    make(chan struct{}, 1),
		grouped: make(chan struct{}, 1),
		room:    newRoom(int64(config.MaxPending), config.MaxPendingBytes),
		large:   newLargeAnswers(config.Memory.LargeAnswers),
		newest:  newest.New(config.newestLimits()),
		filling: make(chan *newest.Filling, 1),
	}
	s.MembersKnow(config.MembersKnow)
	s.blocks = keycount.New(config.keyCounts)
	s.mu.group = config.Group
	s.mu.pending = map[commandID]*pending{}
	s.mu.changed = make(chan struct{})
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("open %s: %w", config.Name, err)
	}
	s.hub = s.newHub()
	var err error
	if s.metrics, err = newMetrics(s, config.Registerer); err != nil {
		s.hub.Close(ErrClosed)
		return nil, fmt.Errorf("open %s: %w", config.Name, err)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.keep)
	s.running.Go(s.compactor)
	s.running.Go(s.fillNewest)
	if config.GroupCommands {
		s.running.Go(s.proposer)
	}
	return s, nil
}

// load reads what memory has of the state.
func (s *Store) load() error {
	return s.read(func(r *reader) error {
		var err error
		if s.machine.index, s.machine.term, err = r.applied(); err != nil {
			return err
		}
		if s.machine.sessions, err = loadSessions(r); err != nil {
			return err
		}
		leases, err := loadLeases(r)
		if err != nil {
			return err
		}
		attached, err := loadAttached(r)
		if err != nil {
			return err
		}
		members, err := r.members()
		if err != nil {
			return err
		}
		if members == nil {
			members = s.founding()
		}
		state, err := loadAuthority(r)
		if err != nil {
			return err
		}
		alarms, err := loadAlarms(r)
		if err != nil {
			return err
		}
		if r.meta.Bytes == 0 {
			if r.meta.Bytes, err = r.sumBytes(); err != nil {
				return err
			}
		}
		s.setAuthority(state)
		s.alarms.Store(&alarms)
		s.members.replace(members)
		s.machine.meta = r.meta
		s.blocks.Reset(r.meta.Revision)
		s.newest.Reset()
		s.lessor.Replace(leases, attached)
		s.sized(r.meta, nil, 0)
		s.importing.Store(importing(r.meta))
		s.revision.Store(r.meta.Revision)
		s.compacted.Store(r.meta.Compacted)
		s.mu.Lock()
		s.restLocked(r.meta)
		s.mu.Unlock()
		s.index.Store(s.machine.index)
		return nil
	})
}

// Revision is that of the newest change that this member has applied.
func (s *Store) Revision() uint64 { return s.revision.Load() }

// Compacted is the lowest revision that can still be read.
func (s *Store) Compacted() uint64 { return s.compacted.Load() }

// SetGroup gives the store its Raft group, once, before anything is expected of it.
func (s *Store) SetGroup(g Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.group = g
}

// Close ends what waits, and waits for what runs. The group must have been stopped.
func (s *Store) Close() {
	s.mu.Lock()
	if s.mu.closed {
		s.mu.Unlock()
		return
	}
	s.mu.closed = true
	lost := s.takePendingLocked(func(*pending) bool { return true })
	waiting := s.reachedLocked(math.MaxUint64)
	s.notifyLocked()
	s.mu.Unlock()
	wakeReaching(waiting)
	s.lose(lost)
	s.cancel()
	s.hub.Close(ErrClosed)
	s.running.Wait()
	s.mu.readers.Wait()
	s.metrics.close()
}

// begin keeps the database open until mu.readers.Done; false: the store is closed.
func (s *Store) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.mu.closed {
		s.mu.readers.Add(1)
	}
	return !s.mu.closed
}

// open starts reading the database, which is not closed before done.
func (s *Store) open(from source) (*reader, error) {
	if !s.begin() {
		return nil, ErrClosed
	}
	r, err := newReader(s.layout, from)
	if err != nil {
		s.mu.readers.Done()
		return nil, err
	}
	r.vacant = s.blocks
	return r, nil
}

func (s *Store) done(r *reader) {
	if err := r.close(); err != nil {
		s.config.Logger.Error("reading "+s.config.Name, "error", err)
	}
	s.mu.readers.Done()
}

// DurableApplied implements group.StateMachine.
func (s *Store) DurableApplied() (uint64, error) {
	value, ok, err := s.config.State.DurableGet(s.layout.applied)
	if err != nil || !ok {
		return 0, err
	}
	index, _, err := decodeApplied(value)
	return index, err
}
