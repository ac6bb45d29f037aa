package table

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route/nodes"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ErrWrongCluster means that a server belongs to another cluster than the one that was met first.
var ErrWrongCluster = errors.New("the server belongs to another cluster")

// Known is what a sender knows of its cluster: the Table in use, and what the next Table is made
// from. Its methods may be called from any goroutine.
type Known struct {
	nodes   *nodes.Nodes
	log     *slog.Logger
	current atomic.Pointer[Table]

	mu struct {
		sync.Mutex
		cluster  uint64
		contents *contents
	}
}

// NewKnown makes a Known with an empty table.
func NewKnown(all *nodes.Nodes, log *slog.Logger) *Known {
	k := &Known{nodes: all, log: log}
	k.mu.contents = newContents()
	k.current.Store(newTable())
	return k
}

// Table is the current table; it is empty until the first one has come.
func (k *Known) Table() *Table { return k.current.Load() }

// Staged gathers a whole table aside, before it is taken into use.
type Staged struct{ contents *contents }

// NewStaged makes an empty Staged.
func NewStaged() *Staged { return &Staged{contents: newContents()} }

// Apply takes an update in. Its error says that a descriptor makes no sense; the descriptor is left
// out.
func (s *Staged) Apply(u *clusterpb.TableUpdate) error {
	bad := s.contents.apply(u, &changes{})
	for _, l := range u.Leaders {
		s.contents.leaders[l.Partition] = l
	}
	return bad
}

// Node finds or makes a node.
func (k *Known) Node(id keys.NodeID) *nodes.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.nodeLocked(id)
}

func (k *Known) nodeLocked(id keys.NodeID) *nodes.Node {
	return k.nodes.Get(id, k.mu.contents.nodes[id])
}

// Belongs checks, or takes, the cluster's id.
func (k *Known) Belongs(cluster uint64) error {
	if cluster == 0 {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.cluster == 0 {
		k.mu.cluster = cluster
	}
	if k.mu.cluster != cluster {
		return fmt.Errorf("%w: %016x, not %016x", ErrWrongCluster, cluster, k.mu.cluster)
	}
	return nil
}

// Merge applies an update to the table in use.
func (k *Known) Merge(u *clusterpb.TableUpdate) {
	k.mu.Lock()
	var touched changes
	if bad := k.mu.contents.apply(u, &touched); bad != nil {
		k.log.Warn("a server sent a descriptor that makes no sense; it is ignored", "error", bad)
	}
	if touched.nodes || len(touched.keyspaces) > 0 {
		k.publishLocked(k.current.Load(), &touched)
	}
	k.mu.Unlock()
	k.learnLeaders(u.Leaders)
}

// Replace makes a whole table the one in use. It refuses one that is behind what is known, or that
// names no cluster. A table that was taken is not to be used by the caller any more.
func (k *Known) Replace(whole *Staged) bool {
	staged := whole.contents
	k.mu.Lock()
	if staged.revision < k.mu.contents.revision || k.mu.cluster == 0 {
		k.mu.Unlock()
		return false
	}
	everything := staged.everything()
	k.keepKnownLocked(staged, everything)
	leaders := slices.Collect(maps.Values(staged.leaders))
	staged.leaders = nil
	k.mu.contents = staged
	k.publishLocked(newTable(), everything)
	k.mu.Unlock()
	k.learnLeaders(leaders)
	return true
}

// keepKnownLocked adds to a whole table what is known of its keyspaces besides: answers of nodes
// may have brought later descriptors than the core has heard of.
func (k *Known) keepKnownLocked(staged *contents, touched *changes) {
	keep := func(known *Partition) {
		if !staged.stays(known.Keyspace) {
			return
		}
		p := newPartition(known.Descriptor) // the known one is published, and does not change any more
		p.Hints = known.Hints
		if listed := staged.partitions[p.ID]; listed == nil ||
			newerEpoch(p.Descriptor, listed.Descriptor) {
			staged.partitions[p.ID] = p
		}
		change := touched.keyspace(p.Keyspace)
		change.in = append(change.in, p)
	}
	for _, known := range k.mu.contents.partitions {
		if listed := staged.partitions[known.ID]; listed != nil {
			listed.Hints = known.Hints
			if listed.tellsAllOf(known.Descriptor) {
				continue
			}
		}
		keep(known)
	}
	for _, l := range k.mu.contents.layouts {
		for known := range l.clipped {
			if k.mu.contents.partitions[known.ID] != known {
				keep(known)
			}
		}
	}
}

// publishLocked makes a new table, on top of another one, of what an update of the contents has
// touched, and wakes the callers that wait for one. It costs in proportion to that.
func (k *Known) publishLocked(on *Table, touched *changes) {
	old := k.current.Load()
	t := &Table{
		Cluster:  k.mu.cluster,
		Revision: k.mu.contents.revision,
		youngest: old.youngest,
		nodes:    on.nodes,
		changed:  make(chan struct{}),
	}
	if touched.nodes {
		t.nodes = maps.Clone(k.mu.contents.nodes)
		k.nodes.Update(t.nodes)
	}
	ids, names := on.ids.Edit(), on.names.Edit()
	for id, change := range touched.keyspaces {
		l := k.layoutLocked(id, change)
		if before, ok := ids.View().Get(id); ok {
			names.Delete(named{before.Info.Name, id})
		}
		info := k.mu.contents.keyspaces[id]
		if info == nil {
			ids.Delete(id)
			if l.shown.Len() == 0 {
				delete(k.mu.contents.layouts, id)
			}
			continue
		}
		_, followed := k.mu.contents.followed[id]
		keyspace := l.keyspace(id, info, followed || k.mu.contents.followsAll)
		ids.Set(id, keyspace)
		t.youngest = max(t.youngest, id)
		if info.State != clusterpb.KeyspaceState_DROPPING && !keys.IsHidden(info.Name) {
			names.Set(named{info.Name, id}, keyspace)
		}
	}
	t.ids, t.names = ids.Tree(), names.Tree()
	k.current.Store(t)
	close(old.changed)
}

// layoutLocked brings the layout of a keyspace up to date. What it does not show any more is
// forgotten.
func (k *Known) layoutLocked(id keys.KeyspaceID, change *keyspaceChanges) *layout {
	c := k.mu.contents
	l := c.layouts[id]
	if l == nil {
		l = newLayout()
		c.layouts[id] = l
	}
	if change.dropped && c.keyspaces[id] == nil {
		for _, p := range l.shown.Values() {
			delete(c.partitions, p.ID)
		}
		l = newLayout()
		c.layouts[id] = l
		for _, p := range change.in {
			delete(c.partitions, p.ID)
		}
		return l
	}
	if len(change.in)+len(change.out) == 0 {
		return l
	}
	for _, p := range change.in {
		k.equipLocked(p)
	}
	for _, p := range l.change(change.in, change.out) {
		if c.partitions[p.ID] == p {
			delete(c.partitions, p.ID)
		}
	}
	return l
}

// equipLocked gives a partition its hint and its voters, before it is shown.
func (k *Known) equipLocked(p *Partition) {
	p.Voters = p.Voters[:0]
	for _, r := range p.Descriptor.Replicas {
		if r.Role != clusterpb.ReplicaRole_LEARNER {
			p.Voters = append(p.Voters, k.nodeLocked(keys.NodeID(r.Node)))
		}
	}
	if p.Hints != nil {
		return
	}
	p.Hints = NewHints()
	// A partition that has split off is led at first where the one is that it was a part of.
	if from := k.mu.contents.partitions[keys.PartitionID(p.Descriptor.SplitFrom)]; from != nil &&
		from.Hints != nil {
		if l := from.Hints.Current(); l != nil {
			p.Hints.position = max(0, slices.Index(p.Voters, l.Node))
		}
	}
}

// learnLeaders takes hints in.
func (k *Known) learnLeaders(leaders []*clusterpb.Leader) {
	if len(leaders) == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	for _, l := range leaders {
		p := k.mu.contents.partitions[keys.PartitionID(l.Partition)]
		if p != nil && p.Hints != nil && l.Node != 0 && l.Term != 0 {
			p.Hints.Learn(k.nodeLocked(keys.NodeID(l.Node)), l.Term, nil, now)
		}
	}
}

// LearnPartitions takes in descriptors that came with an answer, and reports whether they changed
// anything.
func (k *Known) LearnPartitions(partitions []*clusterpb.Partition) bool {
	if len(partitions) == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var touched changes
	for _, p := range partitions {
		if k.mu.contents.keyspaces[keys.KeyspaceID(p.Keyspace)] == nil {
			continue // dropped meanwhile, or not known yet: the table stream will tell
		}
		if err := k.mu.contents.describe(p, &touched); err != nil {
			k.log.Warn("a node sent a descriptor that makes no sense; it is ignored", "error", err)
		}
	}
	if len(touched.keyspaces) == 0 {
		return false
	}
	k.publishLocked(k.current.Load(), &touched)
	for id, change := range touched.keyspaces {
		if l := k.mu.contents.layouts[id]; l != nil && slices.ContainsFunc(change.in, l.shows) {
			return true
		}
	}
	return false
}
