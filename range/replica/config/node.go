package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/metrics"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Node holds what the rooms of all replicas of one node share. It is made once, and not changed
// after the first replica is made.
type Node struct {
	Clock *hlc.Clock
	// ClockTrusted, if not nil, reports whether leaders may rely on Clock. A leader that was
	// elected while the clock was not believed serves clients once it is (Replica.ClockTrusted). It
	// must be cheap.
	ClockTrusted func() bool
	// Metrics may be nil; then nothing is counted.
	Metrics *metrics.Metrics
	// Logger may be nil; then nothing is logged.
	Logger *slog.Logger
	// LogBehind, if not nil, reports that too much waits for the raft log to add more. It is called
	// once for each evaluation.
	LogBehind func() bool
	Disks
	// Silent, if not nil, reports that a node which holds replicas of this node's partitions has
	// not been heard of for an election timeout.
	Silent func(node keys.NodeID) bool
	// Covering, if not nil, returns the descriptors that the node knows of the successors of a
	// partition, itself included, and of the partitions that cover a span of internal keys, nearest
	// first. They go into the refusal of a request that was routed by an old table. It must be
	// cheap.
	Covering func(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition
	// Pusher, if not nil, asks the coordinators of transactions that are in the way. Without it
	// requests only wait for them.
	Pusher txn.Pusher
	// TransactionLimits, if not nil, returns the limits of a keyspace, of which this node need not
	// have a partition. It must be cheap.
	TransactionLimits func(keys.KeyspaceID) txn.Limits
	// AfterFunc calls a function after a time, for commit wait. Default: time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) timer.Timer
	// Pool runs work that must not delay the caller of Submit, or the group's workers. Default: a
	// Pool of 4 goroutines and a queue of 4,096.
	Pool *Pool
	// Long runs reads of many rows, apart from work that others wait for. Default: a Pool of 4
	// goroutines and a queue of 1,024; beyond that, reads are refused.
	Long *Pool
	Limits
	// Waits are the clocks that commit wait waits for.
	Waits commitwait.Clocks
	// Load measures the foreground load of this node.
	Load  *admission.Load
	Hooks Hooks
}

// Disks reports the room on the disks of this node and of others.
type Disks struct {
	// DiskFull, if not nil, reports that there is no room for writes at present. It is called once
	// for each evaluation.
	DiskFull func() bool
	// RoomShare returns the smallest share of the reserve whose entries are proposed and stored
	// while DiskFull is true; if it returns NoShare or is nil, no entries are.
	RoomShare func() group.Share
	// PeerTakes, if not nil, reports whether another node stores entries of a share.
	PeerTakes func(node keys.NodeID, share group.Share) bool
	// WithoutRoom, if not nil, reports that another node's disk is below its reserve, so that its
	// followers store nothing. AnyWithoutRoom reports that this may be so of some node, and is
	// cheap. Both must be set, or neither.
	WithoutRoom    func(node keys.NodeID) bool
	AnyWithoutRoom func() bool
}

// Hooks let tests act in between; all may be nil.
type Hooks struct {
	// Evaluate runs before each write is evaluated.
	Evaluate func()
	// Read runs before an evaluation reads a key.
	Read func()
	// Committed runs when a batch can be read from the engine, and no other state shows it yet.
	Committed func()
	// LockTime returns the time by which waits for locks and for closed timestamps are measured; no
	// timers run if it is set.
	LockTime func() time.Time
	// TableBytes, if not 0, is the approximate size of a table of a snapshot.
	TableBytes uint64
}

// Prepare sets defaults. It is called once, before the first replica is made.
func (n *Node) Prepare() error {
	if n.Clock == nil {
		return fmt.Errorf("replica: a node needs a clock")
	}
	if n.Logger == nil {
		n.Logger = slog.New(slog.DiscardHandler)
	}
	if n.Metrics == nil {
		n.Metrics = metrics.New(nil)
	}
	if n.AfterFunc == nil {
		n.AfterFunc = timer.Plain
	}
	if n.Pool == nil {
		n.Pool = NewPool(4, 4096)
	}
	if n.Long == nil {
		n.Long = NewPool(4, 1024)
	}
	n.EnsureDefaults()
	n.Waits = commitwait.Clocks{Clock: n.Clock, AfterFunc: n.AfterFunc, Seconds: n.Metrics.CommitWait}
	n.Load = admission.NewLoad(time.Now())
	return nil
}

// Tell writes the present time into an answer, or atLeast if that is later. The answer may have
// memory for it.
func (n *Node) Tell(response *kvpb.Response, atLeast hlc.Timestamp) {
	now, trusted := n.Clock.Reading()
	if response.Now == nil {
		response.Now = &kvpb.Timestamp{}
	}
	command.SetTimestamp(response.Now, hlc.Max(now, atLeast))
	response.ClockUntrusted = !trusted
}

// LimitsOf returns the limits of a keyspace; zero limits if they are not known.
func (n *Node) LimitsOf(id keys.KeyspaceID) txn.Limits {
	if n.TransactionLimits == nil || id == 0 {
		return txn.Limits{}
	}
	return n.TransactionLimits(id)
}

// Asked notes requests of the foreground as load: reads, writes, locks of small transactions.
// Requests by which large transactions take their locks do not count, nor do their heartbeats,
// pushes, ends and resolutions, and neither does what a backup reads. (The reads of large
// transactions count, but these are over by then.) The requests may be hostile, but have commands.
func (n *Node) Asked(batch []*kvpb.Request, now time.Time) {
	if n.Load.Noted(now) {
		return
	}
	for _, q := range batch {
		if !q.Background && command.Of(q).IsForeground(q) {
			n.Load.Note(now)
			return
		}
	}
}

// BelievesClock reports that leaders may rely on the clock.
func (n *Node) BelievesClock() bool { return n.ClockTrusted == nil || n.ClockTrusted() }

// LockNow returns the time by which waits for locks are measured.
func (n *Node) LockNow() time.Time {
	if now := n.Hooks.LockTime; now != nil {
		return now()
	}
	return time.Now()
}

// CheckAhead merges a timestamp into the clock. It refuses a timestamp from so far ahead that no
// clock of the cluster can have given it.
func (n *Node) CheckAhead(t, now hlc.Timestamp) bool {
	return t.LessEq(now) || n.Clock.Update(t) == nil
}
