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

// Node is what the rooms of a data node have in common. Its fields do not change after the node is
// made.
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
	// DiskShort says that what is free on the disk, less what flushes and applying are still to
	// write, is below the reserve. The room of disks sets it.
	DiskShort atomic.Bool
}

// Jitter is a random part of a duration, in nanoseconds.
func (n *Node) Jitter(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64(n.Random() % uint64(d))
}

// DiskFull says whether writes find no room here.
func (n *Node) DiskFull() bool { return n.Log.Full() || n.State.Full() || n.DiskShort.Load() }

// ReplicaHere is this node's replica in a descriptor; nil if it has none.
func (n *Node) ReplicaHere(p *clusterpb.Partition) *clusterpb.Replica {
	for _, r := range p.GetReplicas() {
		if r.GetNode() == uint64(n.ID) {
			return r
		}
	}
	return nil
}

// SetKeyspace hands a keyspace's settings to a replica.
func (n *Node) SetKeyspace(r *replica.Replica, id keys.KeyspaceID) {
	t := n.Table.Load()
	// In this order: with a window, what is protected is known.
	r.GC().SetProtected(t.Protected(id))
	r.GC().SetWindow(t.GCWindow(id))
	r.Writes().SetCommitWait(t.CommitWait(id))
	r.Writes().SetDefaultTTL(t.DefaultTTL(id))
	r.SetClosedLag(t.ClosedLag(id))
}

// Health is whether a node serves.
type Health struct {
	// Refusal is nil while it does.
	Refusal atomic.Pointer[Refusal]
}

// Refusal is why no request is served.
type Refusal struct {
	Code    kvpb.ErrorCode
	Message string
}

// Refuse has the node serve nothing, which is unhealthy or not ready.
func (h *Health) Refuse(message string) {
	h.Refusal.Store(&Refusal{kvpb.ErrorCode_NODE_UNHEALTHY, message})
}

// Fit says whether the node may lead.
func (h *Health) Fit() bool { return h.Refusal.Load() == nil }

// ClockRefused says whether the clock is why the node does not serve, be it wrong or not compared
// yet.
func (h *Health) ClockRefused() bool {
	r := h.Refusal.Load()
	return r != nil && r.Code == kvpb.ErrorCode_CLOCK_SKEW
}
