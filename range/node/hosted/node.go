package hosted

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Node is what the rooms of a data node share. Its fields do not change after the node is made.
type Node struct {
	ID       keys.NodeID
	Log      *engine.Log
	State    *engine.State
	Clock    *hlc.Clock
	Host     *host.Host
	Table    *table.Current
	Replicas *Registry
	Leaders  *Leaders
	Health   Health
	Metrics  *Metrics
	Logger   *slog.Logger
	// Now is a monotonic clock, in nanoseconds since the node was made.
	Now    func() int64
	Random func() uint64
	// DiskShort is set while the free space of the disk, less what flushes and applying have yet to
	// write, is below the reserve. Package disks sets it.
	DiskShort atomic.Bool
}

// Jitter returns a random part of a duration, in nanoseconds.
func (n *Node) Jitter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(n.Random() % uint64(d))
}

// DiskFull reports whether there is no room for writes here.
func (n *Node) DiskFull() bool { return n.Log.Full() || n.State.Full() || n.DiskShort.Load() }

// ReplicaHere returns this node's replica in a descriptor; nil if there is none.
func (n *Node) ReplicaHere(p *clusterpb.Partition) *clusterpb.Replica {
	for _, r := range p.GetReplicas() {
		if r.GetNode() == uint64(n.ID) {
			return r
		}
	}
	return nil
}

// SetKeyspace applies a keyspace's settings to a replica. Several goroutines call it: that of the
// table, and those that open replicas. One that is late could set what an older table says, after
// another one has set what the present table says. So each looks afterwards whether its table is
// still the present one, and otherwise sets everything again.
func (n *Node) SetKeyspace(r *replica.Replica, id keys.KeyspaceID) {
	for t := n.Table.Load(); ; {
		r.GC().SetKept(t.GCWindow(id), t.Protected(id))
		r.Writes().SetCommitWait(t.CommitWait(id))
		r.Writes().SetDefaultTTL(t.DefaultTTL(id))
		r.SetClosedLag(t.ClosedLag(id))
		present := n.Table.Load()
		if present == t {
			return
		}
		t = present
	}
}

// Health says whether a node serves.
type Health struct {
	// Refusal is nil while the node serves.
	Refusal atomic.Pointer[Refusal]
}

// Refusal is why no request is served.
type Refusal struct {
	Code    kvpb.ErrorCode
	Message string
}

// Refuse stops a node from serving that is unhealthy or not ready.
func (h *Health) Refuse(message string) {
	h.Refusal.Store(&Refusal{kvpb.ErrorCode_NODE_UNHEALTHY, message})
}

// Fit reports whether the node may lead.
func (h *Health) Fit() bool { return h.Refusal.Load() == nil }

// ClockRefused reports that the node does not serve because of its clock, which is wrong or not
// compared yet.
func (h *Health) ClockRefused() bool {
	r := h.Refusal.Load()
	return r != nil && r.Code == kvpb.ErrorCode_CLOCK_SKEW
}
