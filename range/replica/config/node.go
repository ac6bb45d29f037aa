package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/metrics"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Node is what the rooms of all replicas of one node share. It is made once, and not changed
// after the first replica is made.
type Node struct {
	Clock *hlc.Clock
	// ClockTrusted, if not nil, says whether leaders may go by Clock. One that was elected while it
	// was not believed serves clients when it is (Replica.ClockTrusted). It must be cheap.
	ClockTrusted func() bool
	// Metrics may be nil: nothing is counted.
	Metrics *metrics.Metrics
	// Logger may be nil: nothing is logged.
	Logger *slog.Logger
	// LogBehind, if not nil, says that too much waits for the raft log to add to it. It is asked
	// once for each evaluation.
	LogBehind func() bool
	Disks
	// Silent, if not nil, says that a node that holds replicas of this node's partitions has not
	// been heard of for an election timeout.
	Silent func(node keys.NodeID) bool
	// Covering, if not nil, are the descriptors that the node knows of what has become of a
	// partition, itself included, and of a span of internal keys, nearest to that first. A refusal of
	// a request that was routed by an old table brings them. It must be cheap.
	Covering func(p *clusterpb.Partition, span keys.Span) []*clusterpb.Partition
	// Pusher, if not nil, asks the coordinators of transactions that are in the way. Without it
	// they are waited for only.
	Pusher txn.Pusher
	// TransactionLimits, if not nil, are those of a keyspace, of which this node need not have a
	// partition. It must be cheap.
	TransactionLimits func(keys.KeyspaceID) txn.Limits
	// AfterFunc calls a function when a time has passed, for what waits for clocks. Default:
	// time.AfterFunc.
	AfterFunc func(d time.Duration, f func()) alarm.Timer
	// Pool runs what must not hold up the caller of Submit, or the group's workers. Default: a Pool
	// of 4, 4,096.
	Pool *Pool
	// Long runs reads of many rows, apart from what others wait for. Default: a Pool of 4, 1,024;
	// what comes beyond that is refused.
	Long *Pool
	Limits
	// Waits are the clocks that commit wait waits for.
	Waits commitwait.Clocks
	// Load is what the foreground asks of this node.
	Load  *admission.Load
	Hooks Hooks
}

// Disks tell of the room on the disks of this node and of others.
type Disks struct {
	// DiskFull, if not nil, says that there is no room for writes at present. It is asked once for
	// each evaluation.
	DiskFull func() bool
	// RoomShare is the smallest share of the reserve of which entries are proposed and stored while
	// DiskFull; NoShare, or nil: none are.
	RoomShare func() group.Share
	// PeerTakes, if not nil, says whether another node stores entries of a share.
	PeerTakes func(node keys.NodeID, share group.Share) bool
	// WithoutRoom, if not nil, says that another node's disk is below its reserve, so that its
	// followers store nothing; any says that this may be so of some node, and is cheap. Both must
	// be set, or neither.
	WithoutRoom    func(node keys.NodeID) bool
	AnyWithoutRoom func() bool
}

// Hooks are for tests of what may happen in between; all may be nil.
type Hooks struct {
	// Evaluate runs before each write is evaluated.
	Evaluate func()
	// Read runs before an evaluation looks up what is at a key.
	Read func()
	// Committed runs when a batch can be read from the engine, and nothing else knows it yet.
	Committed func()
	// LockTime is the time by which waiting for locks, and for what is closed, is measured; no
	// timer runs then.
	LockTime func() time.Time
	// TableBytes, if not 0, is about how large a table of a snapshot gets.
	TableBytes uint64
}

// Prepare fills in what is left out. It is called once, before the first replica is made.
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
		n.AfterFunc = alarm.Plain
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

// Tell has an answer say what time it is, but at least some timestamp that it tells of. The answer
// may have memory for that.
func (n *Node) Tell(response *kvpb.Response, atLeast hlc.Timestamp) {
	now, trusted := n.Clock.Reading()
	if response.Now == nil {
		response.Now = &kvpb.Timestamp{}
	}
	command.SetTimestamp(response.Now, hlc.Max(now, atLeast))
	response.ClockUntrusted = !trusted
}

// LimitsOf are those of a keyspace; none if they are not known.
func (n *Node) LimitsOf(id keys.KeyspaceID) txn.Limits {
	if n.TransactionLimits == nil || id == 0 {
		return txn.Limits{}
	}
	return n.TransactionLimits(id)
}

// Asked notes requests of the foreground as load: reads, writes, locks of small transactions. The
// requests by which large transactions take their locks do not count, nor what goes with them:
// heartbeats, pushes, ends, resolutions. (Their reads do, but they are over by then.) The requests
// may be hostile, but have commands.
func (n *Node) Asked(batch []*kvpb.Request, now time.Time) {
	if n.Load.Noted(now) {
		return
	}
	for _, q := range batch {
		if command.Of(q).IsForeground(q) {
			n.Load.Note(now)
			return
		}
	}
}

// BelievesClock says that leaders may go by the clock.
func (n *Node) BelievesClock() bool { return n.ClockTrusted == nil || n.ClockTrusted() }

// LockNow is the time by which what waits for locks is measured.
func (n *Node) LockNow() time.Time {
	if now := n.Hooks.LockTime; now != nil {
		return now()
	}
	return time.Now()
}

// CheckAhead refuses a timestamp from so far ahead that no clock of the cluster can have given it,
// and merges it otherwise.
func (n *Node) CheckAhead(t, now hlc.Timestamp) bool {
	return t.LessEq(now) || n.Clock.Update(t) == nil
}
