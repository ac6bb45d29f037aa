package quotas

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Node is the node that keeps to quotas.
type Node interface {
	// KeyspaceOf returns the keyspace of a partition, 0 if the node does not know it.
	KeyspaceOf(partition uint64) uint64
	// Refuse answers a request that does not run.
	Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response))
	// HurryHeartbeat has the node send its next heartbeat soon.
	HurryHeartbeat()
}

// Quotas are the quotas of the keyspaces of a cluster, on one node. Safe for concurrent use.
type Quotas struct {
	id      keys.NodeID
	node    Node
	refused [kinds]prometheus.Counter
	// rated are the keyspaces with a quota a second, sized those with a quota of bytes; nil: there is
	// none. The maps do not change.
	rated, sized atomic.Pointer[map[keys.KeyspaceID]*keyspace]

	mu struct {
		sync.Mutex
		all map[keys.KeyspaceID]*keyspace
	}
	// nodes is the number of nodes. Only Update changes it, with mu held.
	nodes atomic.Int64
	// hurried is when a heartbeat was last hurried, in nanoseconds since 1970.
	hurried atomic.Int64
}

// New makes Quotas, and adds their metrics to those of the node.
func New(id keys.NodeID, node Node, m *hosted.Metrics) *Quotas {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_node_quota_refused_total", Help: "Requests that were refused because their " +
			"keyspace had reached a quota: of stored bytes, of requests, or of bytes a second."},
		[]string{"quota"})
	m.Add(refused)
	q := &Quotas{id: id, node: node}
	for k, label := range labels {
		q.refused[k] = refused.WithLabelValues(label)
	}
	q.mu.all = map[keys.KeyspaceID]*keyspace{}
	return q
}

// Update takes the keyspaces of an update of the table in, and the number of nodes that there are
// now.
func (q *Quotas) Update(changed []*clusterpb.Keyspace, removed []uint32, nodes int) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	before := len(q.mu.all)
	renewed := false
	for _, d := range changed {
		id := keys.KeyspaceID(d.Id)
		k := q.mu.all[id]
		switch {
		case d.State == clusterpb.KeyspaceState_DROPPING || !keys.HasQuota(d):
			delete(q.mu.all, id)
			renewed = renewed || k != nil
			continue
		case k == nil:
			k = &keyspace{id: id}
			q.mu.all[id] = k
		}
		k.set(d, nodes, now)
		renewed = true
	}
	for _, id := range removed {
		delete(q.mu.all, keys.KeyspaceID(id))
	}
	if q.nodes.Swap(int64(nodes)) != int64(nodes) {
		for _, k := range q.mu.all {
			k.share(nodes, now)
		}
	}
	if renewed || len(q.mu.all) != before {
		q.publishLocked()
	}
}

// publishLocked makes the maps that requests look into.
func (q *Quotas) publishLocked() {
	rated, sized := maps.Clone(q.mu.all), maps.Clone(q.mu.all)
	maps.DeleteFunc(rated, func(_ keys.KeyspaceID, k *keyspace) bool { return !k.rated() })
	maps.DeleteFunc(sized, func(_ keys.KeyspaceID, k *keyspace) bool { return k.size.Load() == 0 })
	set := func(p *atomic.Pointer[map[keys.KeyspaceID]*keyspace], m map[keys.KeyspaceID]*keyspace) {
		if len(m) == 0 {
			p.Store(nil)
			return
		}
		p.Store(&m)
	}
	set(&q.rated, rated)
	set(&q.sized, sized)
}

// Take takes what the core says.
func (q *Quotas) Take(shares []*clusterpb.KeyspaceShare) {
	if len(shares) == 0 {
		return
	}
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range shares {
		if k := q.mu.all[keys.KeyspaceID(s.GetKeyspace())]; k != nil {
			k.take(s, now)
		}
	}
}

// Demands returns what is asked of this node, for a heartbeat.
func (q *Quotas) Demands() (all []*clusterpb.KeyspaceDemand) {
	rated := q.rated.Load()
	if rated == nil {
		return nil
	}
	now := time.Now()
	for id, k := range *rated {
		if requests, bytes := k.demand(now); requests|bytes != 0 {
			all = append(all, &clusterpb.KeyspaceDemand{Keyspace: uint32(id),
				RequestsPerSecond: requests, BytesPerSecond: bytes})
		}
	}
	return all
}

// Full reports whether a keyspace holds as many bytes as its quota allows.
func (q *Quotas) Full(id keys.KeyspaceID) bool {
	sized := q.sized.Load()
	if sized == nil {
		return false
	}
	k := (*sized)[id]
	return k != nil && k.full()
}

// Refuse counts the refusal of a write to a keyspace that is Full, and returns it as a sentence.
func (q *Quotas) Refuse(id keys.KeyspaceID) string {
	q.refused[ofSize].Inc()
	sized := q.sized.Load()
	if sized == nil || (*sized)[id] == nil {
		return "the keyspace has reached its quota of stored bytes; delete data, or raise the quota"
	}
	k := (*sized)[id]
	k.mu.Lock()
	name := k.mu.name
	k.mu.Unlock()
	return fmt.Sprintf("keyspace %q has reached its quota of %s: it holds %d bytes, history "+
		"included; delete data and wait until the history is collected, or raise the quota with: "+
		"tidemark keyspace alter %s --quota-bytes N", name, keys.SizeText(k.size.Load()), k.used.Load(), name)
}
