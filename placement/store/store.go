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
	"github.com/tidemarkdb/tidemark/placement/store/admission"
	"github.com/tidemarkdb/tidemark/placement/store/apply"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/compaction"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/keeper"
	"github.com/tidemarkdb/tidemark/placement/store/keycount"
	"github.com/tidemarkdb/tidemark/placement/store/lease"
	"github.com/tidemarkdb/tidemark/placement/store/newest"
	"github.com/tidemarkdb/tidemark/placement/store/reading"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Group are the methods of its Raft group that the store needs; host.Group implements it.
type Group interface {
	execute.Group
	reading.Group
}

// Peers reaches other members of the store.
type Peers interface {
	execute.Peers
	reading.Peers
	keeper.Peers
}

// Config configures a Store. State must be set.
type Config struct {
	// State is the core's state database. The store is the only user of its partition's local span.
	// It does not close the database.
	State *engine.State
	// Partition is the id of the store's Raft group, and determines the store's span in the
	// database. Default keys.CorePartition.
	Partition keys.PartitionID
	// Name is the name of the store in errors and logs. Default "the core's store".
	Name string
	// Group can be given later, with SetGroup.
	Group Group
	// Peers reaches the other members, for commands and reads that come in at a member that does
	// not lead. With nil Peers only the leader accepts them.
	Peers Peers
	// Founding are the members with which the store was founded. They are in force until the state
	// has a record of members with a higher version. nil for a member that was added later, and
	// gets its state from a snapshot.
	Founding *storepb.Members

	// History is how many revisions the leader keeps when it compacts; HistoryFor is how long it
	// keeps a revision after it was the newest. A revision is compacted if either allows it.
	// Default, if neither is set: 10,000 revisions. A negative HistoryFor keeps all revisions until
	// a command compacts them.
	History    uint64
	HistoryFor time.Duration
	// MaxPending and MaxPendingBytes bound the commands whose outcome is open; Do waits until its
	// command is admitted. Defaults 1,024 and 64 MiB, which is well below what Raft lets a leader
	// have without a quorum.
	MaxPending      int
	MaxPendingBytes int64
	// MaxTouched bounds the keys that the ranges of one command may read, compare or delete
	// together, and the keys of a lease, which all go when it ends. Default 10,000. The leader
	// checks the bound; Apply does not.
	MaxTouched int
	// GroupCommands lets commands that arrive while others are being proposed share an entry of the
	// log. All members must know groupFormat.
	GroupCommands bool
	// MembersKnow is the newest format of commands that all members understand, until
	// Store.MembersKnow changes it. Default NewestFormat.
	MembersKnow uint32
	// Level is the active level of the cluster, which enables formats. nil enables all.
	Level *release.Active
	// CheckpointAfter is the part of a lease's term after which the leader records the remaining
	// time in the log, so that the next leader does not restart the term. Default 5 min.
	CheckpointAfter time.Duration
	// MaxWatchers bounds the watches of all streams together; Watch is a stream with one watch. An
	// idle watch takes some 140 bytes, and 130 for each distinct span. Default 10,000.
	MaxWatchers int
	// Memory bounds the store's memory. Zero fields take the defaults.
	Memory Memory
	// watch is set by tests; nil means watch.DefaultLimits.
	watch *watch.Limits
	// newest is set by tests; nil means newest.DefaultLimits.
	newest *newest.Limits
	// keyCounts is set by tests; nil means keycount.DefaultLimits.
	keyCounts *keycount.Limits

	// Monotonic is the clock that counts leases down. Default hlc.SystemMonotonic.
	Monotonic hlc.Monotonic
	// Random seeds the origin id by which this process recognizes its own commands.
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
		c.MaxTouched = admission.DefaultMaxTouched
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
	*execute.Executor
	*reading.Reads
	*tables.Database
	*keeper.Keeper
	*admission.Gate
	*compaction.Compactor
	config  Config
	metrics *metrics
	hub     *watch.Hub
	lessor  *lease.Lessor
	machine *apply.Machine

	revision, compacted atomic.Uint64
	// importing is set while an import is running: then nothing is read and no lease counts down.
	importing atomic.Bool
	members   published[storepb.Members]
	authority published[authority.State]
	alarms    atomic.Pointer[[]*storepb.Alarm]

	ctx    context.Context
	cancel context.CancelFunc
	// blocks counts the keys, and knows spans without keys. Apply updates it before it commits, so
	// that no reader sees a state newer than blocks.
	blocks *keycount.Blocks
	// newest is Apply's cache of the newest versions; filling passes key filters to fillNewest.
	newest  *newest.Cache
	filling chan *newest.Filling
	running sync.WaitGroup
}

var (
	_ group.StateMachine = (*Store)(nil)
	_ group.Configured   = (*Store)(nil)
)

// New opens the store on the state in the database.
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
		lessor:  lease.New(config.Monotonic, config.CheckpointAfter),
		newest:  newest.New(config.newestLimits()),
		filling: make(chan *newest.Filling, 1),
	}
	s.blocks = keycount.New(config.keyCounts)
	layout := tables.NewLayout(config.Partition)
	s.Database = tables.NewDatabase(config.Name, config.State, layout, s.blocks, config.Logger)
	s.machine = apply.New(evaluation{s}, layout, s.blocks, s.newest)
	s.metrics = newMetrics(s)
	s.Gate = admission.New(config.Name, s, s.lessor, config.MaxTouched)
	s.Gate.FollowLevel(config.Level)
	s.Gate.MembersKnow(config.MembersKnow)
	s.Compactor = compaction.New(compaction.Config{Store: s, History: config.History,
		HistoryFor: config.HistoryFor, Now: s.lessor.Now, Logger: config.Logger})
	s.Executor = execute.New(execute.Config{Name: config.Name, Machine: execution{s},
		Peers:      config.Peers,
		MaxPending: config.MaxPending, MaxPendingBytes: config.MaxPendingBytes,
		GroupCommands: config.GroupCommands, Latency: s.metrics.latency,
		Origin: binary.BigEndian.Uint64(origin[:]) | 1, // not 0, which means no process
	})
	s.Reads = reading.NewReads(reading.Config{
		Index:    reading.New(config.Name, s.Executor, config.Peers),
		Database: s.Database, State: s, Blocks: s.blocks,
		LargestAnswer: config.Memory.LargestAnswer, LargeAnswers: config.Memory.LargeAnswers})
	if config.Group != nil {
		s.SetGroup(config.Group)
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.load(); err != nil {
		s.stopRooms()
		return nil, fmt.Errorf("open %s: %w", config.Name, err)
	}
	s.hub = s.newHub()
	if err := s.metrics.register(config.Registerer); err != nil {
		s.hub.Close(command.ErrClosed)
		s.stopRooms()
		return nil, fmt.Errorf("open %s: %w", config.Name, err)
	}
	s.Keeper = keeper.New(keeper.Config{Lessor: s.lessor, Core: s, Peers: config.Peers,
		Logger: config.Logger, Expired: s.metrics.expired})
	s.Compactor.Start()
	s.running.Go(s.fillNewest)
	return s, nil
}

// load reads the values of the newest state into memory.
func (s *Store) load() error {
	return s.ReadState(func(r *tables.Reader) error {
		leases, err := r.Leases()
		if err != nil {
			return err
		}
		attached, err := r.AttachedCounts()
		if err != nil {
			return err
		}
		members, err := r.Members()
		if err != nil {
			return err
		}
		if members == nil {
			members = s.founding()
		}
		state, err := r.Authority()
		if err != nil {
			return err
		}
		alarms, err := r.Alarms()
		if err != nil {
			return err
		}
		if r.Meta.Bytes == 0 {
			if r.Meta.Bytes, err = r.SumBytes(); err != nil {
				return err
			}
		}
		if err := s.machine.Load(r); err != nil {
			return err
		}
		s.authority.replace(state)
		s.alarms.Store(&alarms)
		s.members.replace(members)
		s.blocks.Reset(r.Meta.Revision)
		s.newest.Reset()
		s.lessor.Replace(leases, attached)
		s.Gate.Applied(r.Meta.Bytes, 0, 0)
		s.importing.Store(tables.Importing(r.Meta))
		s.revision.Store(r.Meta.Revision)
		s.compacted.Store(r.Meta.Compacted)
		s.Compactor.Left(r.Meta)
		index, _ := s.Applied()
		s.Advance(index)
		return nil
	})
}

// MembersKnow sets the newest format of commands that all members understand. A format below
// LeastFormat counts as LeastFormat.
func (s *Store) MembersKnow(format uint32) {
	if s.Gate.MembersKnow(format) {
		s.Compactor.Look()
	}
}

// Revision is the revision of the newest change that this member has applied.
func (s *Store) Revision() uint64 { return s.revision.Load() }

// Compacted is the lowest readable revision.
func (s *Store) Compacted() uint64 { return s.compacted.Load() }

// SetGroup sets the Raft group, once, before the store is used.
func (s *Store) SetGroup(g Group) {
	s.Executor.SetGroup(g)
	s.Index.SetGroup(g)
}

// Close ends all waits, and waits for the goroutines. The group must be stopped before.
func (s *Store) Close() {
	if !s.Database.Stop() {
		return
	}
	s.stopRooms()
	s.hub.Close(command.ErrClosed)
	s.running.Wait()
	s.Database.Wait()
	s.metrics.close()
}

func (s *Store) stopRooms() {
	s.cancel()
	s.Executor.Stop()
	s.Index.Stop()
	s.Compactor.Stop()
	if s.Keeper != nil {
		s.Keeper.Stop()
	}
}

// DurableApplied implements group.StateMachine.
func (s *Store) DurableApplied() (uint64, error) {
	value, ok, err := s.config.State.DurableGet(s.Layout.Applied)
	if err != nil || !ok {
		return 0, err
	}
	index, _, err := tables.DecodeApplied(value)
	return index, err
}
