package quotas

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// DemandTime is the time for which a reported demand counts.
	DemandTime = 10 * time.Second
	// Warmup is the time for which a new leader gives nodes no parts. It is longer than the time
	// between two heartbeats of a node.
	Warmup = 4 * time.Second
	// tellPause is the least time between two answers with parts to the same node, because urgent
	// heartbeats can be frequent.
	tellPause = 400 * time.Millisecond
)

// Quotas has the quotas of all keyspaces, as the leader of the core knows them. On other members
// Quotas is empty.
type Quotas struct {
	// now is a monotonic clock in nanoseconds.
	now func() int64
	mu  struct {
		sync.Mutex
		// began is the time when this leadership began. complete is true when the whole table was read
		// since then.
		began     int64
		complete  bool
		keyspaces map[keys.KeyspaceID]*keyspace
		// nodes has the nodes that are not decommissioned, each with the time when it was last sent its
		// parts. The time is 0 if it was not sent any.
		nodes map[keys.NodeID]int64
	}
}

// New returns Quotas that use the given monotonic clock.
func New(now func() int64) *Quotas {
	q := &Quotas{now: now}
	q.Reset()
	return q
}

// Reset removes all data. It is called when a leadership begins or has ended.
func (q *Quotas) Reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.began, q.mu.complete = q.now(), false
	q.mu.keyspaces = map[keys.KeyspaceID]*keyspace{}
	q.mu.nodes = map[keys.NodeID]int64{}
}

// Follow processes an update of the table.
func (q *Quotas) Follow(u *clusterpb.TableUpdate) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range u.Nodes {
		id := keys.NodeID(n.Id)
		if n.Status == clusterpb.NodeStatus_NODE_GONE {
			delete(q.mu.nodes, id)
		} else if _, known := q.mu.nodes[id]; !known {
			q.mu.nodes[id] = 0
		}
	}
	for _, id := range u.RemovedNodes {
		delete(q.mu.nodes, keys.NodeID(id))
	}
	for _, k := range u.Keyspaces {
		q.setLocked(k)
	}
	for _, id := range u.RemovedKeyspaces {
		delete(q.mu.keyspaces, keys.KeyspaceID(id))
	}
	q.mu.complete = q.mu.complete || u.Complete
}

// setLocked adds or changes a keyspace.
func (q *Quotas) setLocked(k *clusterpb.Keyspace) {
	id := keys.KeyspaceID(k.Id)
	if k.State == clusterpb.KeyspaceState_DROPPING || !keys.HasQuota(k) {
		delete(q.mu.keyspaces, id)
		return
	}
	ks := q.mu.keyspaces[id]
	if ks == nil {
		ks = &keyspace{demands: map[keys.NodeID]demand{}}
		q.mu.keyspaces[id] = ks
	}
	ks.name = k.Name
	ks.size, ks.requests, ks.bytes = k.QuotaBytes, k.QuotaRequestsPerSecond, k.QuotaBytesPerSecond
}

// Sized returns the keyspaces that have a quota of bytes.
func (q *Quotas) Sized() (all []keys.KeyspaceID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, ks := range q.mu.keyspaces {
		if ks.size != 0 {
			all = append(all, id)
		}
	}
	return all
}

// SetUsed records the number of bytes of a keyspace.
func (q *Quotas) SetUsed(id keys.KeyspaceID, bytes uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if ks := q.mu.keyspaces[id]; ks != nil {
		ks.used, ks.known = bytes, true
	}
}

// Heartbeat records the demands of a node, and returns the parts and the sizes for the node.
func (q *Quotas) Heartbeat(
	node keys.NodeID, demands []*clusterpb.KeyspaceDemand,
) []*clusterpb.KeyspaceShare {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.keyspaces) == 0 {
		return nil
	}
	now := q.now()
	asked := make(map[keys.KeyspaceID]demand, len(demands))
	for _, d := range demands {
		asked[keys.KeyspaceID(d.GetKeyspace())] = demand{min(d.GetRequestsPerSecond(), mostDemand),
			min(d.GetBytesPerSecond(), mostDemand), now}
	}
	for id, ks := range q.mu.keyspaces {
		ks.set(node, asked[id]) // a node's report has no entry for a keyspace without demand
	}
	told, known := q.mu.nodes[node]
	if !q.mu.complete || !known || told != 0 && now-told < int64(tellPause) {
		return nil
	}
	q.mu.nodes[node] = max(now, 1)
	shares := make([]*clusterpb.KeyspaceShare, 0, len(q.mu.keyspaces))
	for id, ks := range q.mu.keyspaces {
		s := &clusterpb.KeyspaceShare{Keyspace: uint32(id)}
		if ks.size != 0 && ks.known {
			s.UsedBytes = proto.Uint64(ks.used)
		}
		if now-q.mu.began >= int64(Warmup) {
			ks.forget(now)
			d, n := ks.demands[node], len(q.mu.nodes)
			s.RequestsMillionths = part(ks.requests, d.requests, ks.sum.requests, n)
			s.BytesMillionths = part(ks.bytes, d.bytes, ks.sum.bytes, n)
		}
		shares = append(shares, s)
	}
	return shares
}

// floors is the divisor of the floors: the floors of all nodes together are a quota divided by
// floors.
const floors = 20

// part returns a node's part of a quota, in millionths, from the node's demand and the sum of all
// demands. It returns nil if there is no such quota.
func part(quota, demand, sum uint64, nodes int) *uint32 {
	if quota == 0 {
		return nil
	}
	all := float64(quota) / floors
	floor := all / float64(nodes)
	return proto.Uint32(uint32((float64(demand) + floor) / (float64(sum) + all) * 1e6))
}
