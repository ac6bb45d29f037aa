package lifecycle

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/splitrecovery"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/range/replica"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// openProgress is the interval at which a long opening reports its progress.
const openProgress = 5 * time.Second

// IdentityOf returns what the raft log keeps of a new replica.
func (n *Lifecycle) IdentityOf(p *clusterpb.Partition) (raftlog.Identity, error) {
	self := n.ReplicaHere(p)
	id := raftlog.Identity{Group: keys.PartitionID(p.Id), Replica: keys.ReplicaID(self.Replica)}
	// INVARIANT: only the replicas with which a partition is founded know their voters from the
	// table. Any other replica that knew them would vote without having the data.
	if p.SplitFrom != 0 {
		// The base may be here already.
		r, found, err := storage.ReadRecorded(n.State, id.Group)
		if err != nil {
			return id, err
		}
		if at := n.ReplicaHere(r.Descriptor); found && at.GetReplica() == self.Replica {
			return splitrecovery.Identity(r.Descriptor, id.Replica)
		}
	}
	founded := p.Membership == group.FoundingMembership && p.Generation == group.FoundingGeneration &&
		p.SplitFrom == 0
	for _, x := range p.Replicas {
		if founded {
			id.Voters = append(id.Voters, keys.ReplicaID(x.Replica))
		}
	}
	descriptor, err := proto.Marshal(p)
	id.Descriptor = descriptor
	return id, err
}

// isFounder reports whether a replica, created by p, is a voter of a partition that has split off,
// and has nothing because its node has missed the split. Such a replica votes: otherwise the child
// has no majority when another voter is lost, though all that was written is there.
//
// INVARIANT: a replica that is created as a voter has never been anywhere: a replica that joins is
// created as a learner, and no replica id is created again on a node that had it.
func isFounder(id raftlog.Identity, p *clusterpb.Partition) bool {
	if len(id.Voters) > 0 || p.SplitFrom == 0 {
		return false
	}
	self := false
	for _, r := range p.Replicas {
		if r.Role != clusterpb.ReplicaRole_VOTER {
			return false
		}
		self = self || keys.ReplicaID(r.Replica) == id.Replica
	}
	return self
}

// open opens one replica.
func (n *Lifecycle) open(id raftlog.Identity, created bool) (*hosted.Replica, error) {
	p := &clusterpb.Partition{}
	if err := proto.Unmarshal(id.Descriptor, p); err != nil {
		return nil, fmt.Errorf("its descriptor in the raft log: %w", err)
	}
	h := &hosted.Replica{ID: id.Group, Self: id.Replica, Identity: id}
	h.Listed.Store(p)
	current := n.Table.Load().Partition(id.Group)
	if current != nil && keys.CompareEpochs(current, p) >= 0 {
		h.Listed.Store(current)
	}
	hosts := make(map[keys.ReplicaID]uint64, len(p.Replicas))
	for _, r := range p.Replicas {
		hosts[keys.ReplicaID(r.Replica)] = r.Node
	}
	_, err := n.Host.Open(host.GroupConfig{Identity: id, Hosts: hosts, New: created,
		Founder: isFounder(id, p),
		Open: func(g *host.Group) (group.StateMachine, error) {
			h.Group = g
			r, err := replica.New(replica.Config{
				Partition: p, ReplicaID: id.Replica, State: n.State, Group: g,
				Empty:    len(id.Voters) == 0,
				Node:     n.Shared,
				GCWindow: -1, // until the keyspace's window is set
			})
			if err == nil {
				n.SetKeyspace(r, keys.KeyspaceID(p.Keyspace))
			}
			h.Replica = r
			return n.rooms.Machine(h, r), err
		}})
	if err != nil {
		if h.Replica != nil {
			h.Replica.Close()
		}
		return nil, err
	}
	n.Children.noticed(h)
	return h, nil
}

// openAll opens replicas in parallel, and calls failed, one call at a time, for those that do not
// open.
func (n *Lifecycle) openAll(ids []raftlog.Identity, created bool,
	failed func(raftlog.Identity, error)) []*hosted.Replica {
	opened := make([]*hosted.Replica, len(ids))
	errs := make([]error, len(ids))
	var next, done atomic.Int64
	var workers sync.WaitGroup
	for range min(len(ids), 2*runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(ids) {
					return
				}
				opened[i], errs[i] = n.open(ids[i], created)
				done.Add(1)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		workers.Wait()
		close(finished)
	}()
	timer := time.NewTicker(openProgress)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-timer.C:
			n.Logger.Info("opening replicas", "open", done.Load(), "of", len(ids))
		case <-finished:
			waiting = false
		}
	}
	kept := opened[:0]
	for i, h := range opened {
		if errs[i] != nil {
			failed(ids[i], errs[i])
			continue
		}
		kept = append(kept, h)
	}
	return kept
}
