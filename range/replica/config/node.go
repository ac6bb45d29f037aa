package config

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/metrics"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Node holds what the rooms of all replicas of one node share. It is made once, and not changed
// after the first replica is made.
type Node struct {
	Clock *hlc.Clock
	// Server is the server around the replicas. Default: Alone.
	Server
	// Metrics may be nil; then nothing is counted.
	Metrics *metrics.Metrics
	// Logger may be nil; then nothing is logged.
	Logger *slog.Logger
	// Disks are those of this node and of others. Default: Alone.
	Disks
	// Quotas, if not nil, are the quotas of stored bytes.
	Quotas Quotas
	// Pusher, if not nil, asks the coordinators of transactions that are in the way. Without it
	// requests only wait for them.
	Pusher txn.Pusher
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
	// Watch, if not nil, is told of the requests that are answered.
	Watch Watch
	// Load measures the foreground load of this node.
	Load  *admission.Load
	Hooks Hooks
}

// Watch is told of requests that have a timing, before they are answered. It must be cheap, must not
// block, and keeps nothing of what it is given. It is safe for concurrent use.
type Watch interface {
	// Answered is told the command of a request, and the answer that the client gets.
	Answered(p *Pending, c *command.Command, response *kvpb.Response)
}

// Answer counts the answer to a request, and sends it.
func (n *Node) Answer(p *Pending, c *command.Command, response *kvpb.Response) {
	n.Metrics.Answered(c, response)
	if p.Timing != nil {
		n.Watch.Answered(p, c, response)
		p.Timing.Release()
		p.Timing = nil
	}
	p.Reply(response)
}

// Quotas are the quotas of stored bytes that keyspaces have. Safe for concurrent use.
type Quotas interface {
	// Full reports whether a keyspace holds as many bytes as its quota allows. It is called for each
	// write, and must be cheap.
	Full(keys.KeyspaceID) bool
	// Refuse counts the refusal of a write to a keyspace that is Full, and returns it as a sentence.
	Refuse(keys.KeyspaceID) string
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
	if n.Server == nil {
		n.Server = Alone{}
	}
	if n.Disks == nil {
		n.Disks = Alone{}
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
	if id == 0 {
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
