package hosted

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Replica is one replica that this node holds.
type Replica struct {
	ID       keys.PartitionID
	Self     keys.ReplicaID
	Identity raftlog.Identity
	Replica  *replica.Replica
	Group    *host.Group

	// Listed is the descriptor by which the core lists the partition: the table's, or until that is
	// known the one with which the replica was created. The replica's own descriptor is the truth
	// about its span; this one says which is to lead.
	Listed atomic.Pointer[clusterpb.Partition]

	// Leading says that this replica leads, and ledSince since when it does, or has done last, of
	// Node.Now; 0: it never has.
	Leading  atomic.Bool
	LedSince atomic.Int64
	// LeaderlessSince is since when it knows no leader, of Node.Now; 0 while it knows one.
	LeaderlessSince atomic.Int64
	// Removed: it is on its way out.
	Removed atomic.Bool
	Removal Removal
	Split   Split
	Lists   Lists
	Load    loadmeter.Meter
}

// Removal is of a replica that goes, or is to go.
type Removal struct {
	// Moved: a later descriptor names this replica out. The partition goes on elsewhere, and with it
	// what it knows of commits.
	Moved atomic.Bool
	// TakenOver: another partition has consumed this one when it was on its way out already.
	TakenOver atomic.Bool
	// SettleUntil is until when its destruction waits for transactions to be resolved elsewhere. Of
	// the goroutine that removes.
	SettleUntil time.Time
}

// Split is of a replica whose partition has split off here.
type Split struct {
	// Born: it has not led since.
	Born atomic.Bool
	// Campaigning: it is to lead, and requests for it are held.
	Campaigning atomic.Bool
}

// Lists says which lists of the node have a replica, so that each takes it in once.
type Lists struct{ Reports, Elections, Garbage atomic.Bool }

// Preferred is the replica that is to lead, and the host on which it is: the one that is wanted, or
// else the first voter. Zero if the descriptor names none.
func (h *Replica) Preferred() (keys.ReplicaID, uint64) {
	p := h.Listed.Load()
	for _, r := range p.GetReplicas() {
		if r.GetReplica() == p.GetWantedLeader() && r.GetRole() == clusterpb.ReplicaRole_VOTER {
			return keys.ReplicaID(r.GetReplica()), r.GetNode()
		}
	}
	for _, r := range p.GetReplicas() {
		if r.GetRole() == clusterpb.ReplicaRole_VOTER {
			return keys.ReplicaID(r.GetReplica()), r.GetNode()
		}
	}
	return 0, 0
}

func (h *Replica) PrefersSelf() bool {
	id, _ := h.Preferred()
	return id == h.Self
}

// leaderHint is which replica leads, as far as this replica knows; nil if it does not.
func (h *Replica) leaderHint() *clusterpb.Leader {
	leader, term := h.Group.Leader()
	if leader == 0 {
		return nil
	}
	at := h.Group.HostOf(leader)
	if at == 0 {
		return nil
	}
	return &clusterpb.Leader{Partition: uint64(h.ID), Node: at, Term: term}
}

// Registry is the replicas that this node holds, by partition. Readers take no lock.
type Registry struct {
	mu      sync.Mutex // of writers
	current atomic.Pointer[map[keys.PartitionID]*Replica]
}

func NewRegistry() *Registry {
	r := &Registry{}
	r.current.Store(&map[keys.PartitionID]*Replica{})
	return r
}

// All returns the present map, which must not be changed.
func (r *Registry) All() map[keys.PartitionID]*Replica { return *r.current.Load() }

func (r *Registry) Get(id keys.PartitionID) *Replica { return r.All()[id] }

// Snapshot is the present map by its address: there is another one after each change.
func (r *Registry) Snapshot() *map[keys.PartitionID]*Replica { return r.current.Load() }

// Change copies the map once for all that is added and removed.
func (r *Registry) Change(added []*Replica, removed []*Replica) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.All())
	for _, h := range added {
		next[h.ID] = h
	}
	for _, h := range removed {
		delete(next, h.ID)
	}
	r.current.Store(&next)
}
