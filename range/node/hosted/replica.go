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
	// known the descriptor with which the replica was created. The replica's own descriptor is the
	// truth about its span; the listed one says which replica is to lead.
	Listed atomic.Pointer[clusterpb.Partition]

	// Leading is set while this replica leads. ledSince is since when it leads, or has led last
	// (Node.Now); 0: never.
	Leading  atomic.Bool
	LedSince atomic.Int64
	// LeaderlessSince is since when the replica knows no leader (Node.Now); 0 while it knows one.
	LeaderlessSince atomic.Int64
	// Removed is set when the replica is being removed.
	Removed atomic.Bool
	Removal Removal
	Split   Split
	Lists   Lists
	Load    loadmeter.Meter
}

// Removal is the state of a replica that is being removed, or is to be.
type Removal struct {
	// Moved is set if a later descriptor does not name this replica. The partition, and its
	// knowledge of commits, continues elsewhere.
	Moved atomic.Bool
	// TakenOver is set if another partition has consumed this one when its removal had begun
	// already.
	TakenOver atomic.Bool
	// SettleUntil is until when its destruction waits for transactions to be resolved elsewhere.
	// Only the goroutine that removes uses it.
	SettleUntil time.Time
}

// Split is the state of a replica whose partition has split off here.
type Split struct {
	// NewChild is set from the split that has made the replica until the replica has led.
	NewChild atomic.Bool
	// Campaigning is set while the replica is to lead, and requests for it are held.
	Campaigning atomic.Bool
}

// Lists says in which lists of the node a replica is, so that each list takes it once.
type Lists struct{ Reports, Elections, Garbage atomic.Bool }

// Preferred returns the replica that is to lead, and its host: the one that the core wants, or else
// the first voter. Zero if the descriptor names none.
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

// leaderHint returns the replica that leads, as far as this replica knows; nil if it does not know.
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

// Registry holds the replicas of this node, by partition. Readers take no lock.
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

// Snapshot returns the address of the present map, which differs after each change.
func (r *Registry) Snapshot() *map[keys.PartitionID]*Replica { return r.current.Load() }

// Change adds and removes replicas with one copy of the map.
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
