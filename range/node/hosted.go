package node

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// hosted is one replica that this node holds.
type hosted struct {
	node     *Node
	id       keys.PartitionID
	self     keys.ReplicaID
	identity raftlog.Identity
	replica  *replica.Replica
	group    *host.Group

	// listed is the descriptor by which the core lists the partition: the table's, or until that is
	// known the one with which the replica was created. The replica's own descriptor is the truth
	// about its span; this one says which is to lead.
	listed atomic.Pointer[clusterpb.Partition]

	// leading says that this replica leads.
	leading atomic.Bool
	// born: it has split off here, and has not led since.
	born atomic.Bool
	// young: it is to lead, and requests for it are held (young.go).
	young atomic.Bool
	// reportDue and awaiting say that it is in the list of that name, so that it is put there once.
	reportDue atomic.Bool
	// reported is the report that the core has heard last; nil if it has heard none since it asked
	// for all. Of the heartbeats' goroutine.
	reported *clusterpb.PartitionReport
	awaiting atomic.Bool
	garbage  atomic.Bool
	// yielding is until when the leadership is not given away again because of the disk, of
	// Node.now. Of the health goroutine.
	yielding int64
	// ledSince is since when it leads, or has led last, of Node.now; 0: it never has.
	ledSince atomic.Int64
	// leaderlessSince is since when it knows no leader, of Node.now; 0 while it knows one. Of the
	// health goroutine, for all to read.
	leaderlessSince atomic.Int64
	// removed: it is on its way out. settleUntil is until when its destruction waits for Settle; of
	// the reconciler's goroutine.
	removed atomic.Bool
	// moved: a later descriptor names this replica out. The partition goes on elsewhere, and with it
	// what it knows of commits.
	moved atomic.Bool
	// takenOver: another partition has consumed this one when it was on its way out already.
	takenOver   atomic.Bool
	order       atomic.Pointer[order]
	ordered     atomic.Bool // a goroutine carries one out
	thawing     atomic.Bool // a goroutine ends its freeze
	load        loadMeter
	settleUntil time.Time
}

// preferred is the replica that is to lead, and the host on which it is: the one that is wanted, or
// else the first voter. Zero if the descriptor names none.
func (h *hosted) preferred() (keys.ReplicaID, uint64) {
	p := h.listed.Load()
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

func (h *hosted) prefersSelf() bool {
	id, _ := h.preferred()
	return id == h.self
}

// leaderHint is which replica leads, as far as this replica knows; nil if it does not.
func (h *hosted) leaderHint() *clusterpb.Leader {
	leader, term := h.group.Leader()
	if leader == 0 {
		return nil
	}
	at := h.group.HostOf(leader)
	if at == 0 {
		return nil
	}
	return &clusterpb.Leader{Partition: uint64(h.id), Node: at, Term: term}
}

// registry is the replicas that this node holds, by partition. Readers take no lock.
type registry struct {
	mu      sync.Mutex // of writers
	current atomic.Pointer[map[keys.PartitionID]*hosted]
}

func (r *registry) init() { r.current.Store(&map[keys.PartitionID]*hosted{}) }

// all returns the present map, which must not be changed.
func (r *registry) all() map[keys.PartitionID]*hosted { return *r.current.Load() }

func (r *registry) get(id keys.PartitionID) *hosted { return r.all()[id] }

// change copies the map once for all that is added and removed.
func (r *registry) change(added []*hosted, removed []*hosted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := maps.Clone(r.all())
	for _, h := range added {
		next[h.id] = h
	}
	for _, h := range removed {
		delete(next, h.id)
	}
	r.current.Store(&next)
}

// machine is the state machine that the host drives: the replica, and what the node wants to know
// of it.
type machine struct {
	*replica.Replica
	h *hosted
}

var (
	_ group.StateMachine = machine{}
	_ group.Urgent       = machine{}
)

// Apply runs on an apply worker.
func (m machine) Apply(entries []group.Entry) error {
	began := time.Now()
	if err := m.Replica.Apply(entries); err != nil {
		return err
	}
	m.h.load.applying.Add(int64(time.Since(began)))
	bytes, effective := int64(0), false
	for i := range entries {
		bytes += 64 + int64(len(entries[i].Data))
		if !entries[i].Change && proposal.KindOf(entries[i].Data) == proposal.KindRemove {
			m.h.node.giveBack.Removed(m.h.id, int64(len(entries[i].Data)))
		}
		effective = effective || len(entries[i].Data) > 0
	}
	m.h.load.written.Add(uint64(bytes))
	m.h.node.flusher.applied(bytes)
	// Also an entry without effect is news: what the descriptor has become can be reported behind it.
	if m.h.leading.Load() {
		m.h.node.reports.changed(m.h)
		if effective {
			m.h.node.collector.noticed(m.h)
		}
	}
	return nil
}

// LeadershipChanged runs on the group's shard worker.
func (m machine) LeadershipChanged(l group.Leadership) {
	m.Replica.LeadershipChanged(l)
	m.h.node.leadershipChanged(m.h, l)
}
