package fakeserver

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// Cluster is a set of nodes that serve the protocol over an in-memory network, in front of one
// Store. Change its fields with Set, or before there are clients.
type Cluster struct {
	*Store
	Network *memnet.Network
	Nodes   map[uint64]*Node
	// Keyspaces has the keyspaces by id.
	Keyspaces map[uint32]*clusterpb.Keyspace
	// Script is called for every request for a partition before the request is served; nil: no
	// faults.
	Script Script
	// Heard, if not nil, is called with every answer, without the lock held.
	Heard func(n *Node, r *kvpb.Request, answer *kvpb.Response)
	// WaitingFor, if not empty, keeps new keyspaces in the state CREATING.
	WaitingFor string
	// Created, if not nil, is called with a new keyspace before clients learn of it, with the lock
	// held.
	Created func(*clusterpb.Keyspace)
	// Brings selects the descriptors in the refusal of a request with a wrong generation, from all
	// descriptors of the keyspace; nil: all.
	Brings func(of *clusterpb.Partition, all []*clusterpb.Partition) []*clusterpb.Partition
	// NoLeaders hides leaders from the table.
	NoLeaders bool
	// NoMerges makes nodes refuse scans and reads of several partitions, like servers that are
	// older than these commands. NoMoments makes nodes refuse scans of several partitions without a
	// timestamp.
	NoMerges, NoMoments bool
	// Requests counts requests by kind (KindOf). Messages counts the messages with at least one
	// request of a kind. Shared counts the reads of several partitions that NoMerges did not
	// refuse.
	Requests, Messages map[string]int
	Shared             int

	mu       sync.Mutex
	clients  map[string]bool // by host
	nextID   uint64
	revision uint64
	changed  chan struct{}
	// closed is closed by the first Close.
	closed  chan struct{}
	closing sync.Once
}

// Dialer returns a function by which a client on a host connects to the nodes.
func (c *Cluster) Dialer(host string) func(ctx context.Context, address string) (net.Conn, error) {
	c.Set(func() { c.clients[host] = true })
	return c.Network.Dialer(host)
}

// clusterID is the id of every fake cluster.
const clusterID = 0xc1

// Start starts a cluster. Close ends it.
func Start(t testing.TB, nodes int) *Cluster {
	c := &Cluster{
		Store: NewStore(t), Network: memnet.New(), Nodes: make(map[uint64]*Node),
		Keyspaces: make(map[uint32]*clusterpb.Keyspace), nextID: 100, revision: 1,
		changed: make(chan struct{}), closed: make(chan struct{}), clients: make(map[string]bool),
		Requests: make(map[string]int), Messages: make(map[string]int),
	}
	c.later = func(d time.Duration, f func()) { time.AfterFunc(d, func() { c.Set(f) }) }
	for i := 1; i <= nodes; i++ {
		n := &Node{cluster: c, ID: uint64(i), Host: fmt.Sprintf("node%d", i)}
		n.Address = n.Host + ":7400"
		n.Clock = NewClock(skewed{n})
		c.Nodes[n.ID] = n
		n.Start()
	}
	return c
}

// Close ends all nodes.
func (c *Cluster) Close() {
	c.closing.Do(func() { close(c.closed) })
	for _, n := range c.Nodes {
		n.server.Stop()
		<-n.served
	}
}

// Endpoints returns the nodes' addresses.
func (c *Cluster) Endpoints() []string {
	var all []string
	for i := 1; i <= len(c.Nodes); i++ {
		all = append(all, c.Nodes[uint64(i)].Address)
	}
	return all
}

// Set changes a setting.
func (c *Cluster) Set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// Play sets the script.
func (c *Cluster) Play(script Script) { c.Set(func() { c.Script = script }) }

// Change changes the state that the table shows, and notifies the watchers of the table.
func (c *Cluster) Change(f func()) {
	c.Set(func() {
		f()
		c.TellLocked()
	})
}

// TellLocked notifies the watchers of a change of the state that the table shows. The caller is in
// Set, or in a script.
func (c *Cluster) TellLocked() {
	c.revision++
	close(c.changed)
	c.changed = make(chan struct{})
}

// MessagesWith returns the number of messages with a request of a kind that nodes have received.
func (c *Cluster) MessagesWith(kind string) (n int) {
	c.Set(func() { n = c.Messages[kind] })
	return n
}

// RequestsOf returns the number of requests of a kind that nodes have received.
func (c *Cluster) RequestsOf(kind string) (n int) {
	c.Set(func() { n = c.Requests[kind] })
	return n
}

// Writes returns the number of versions of a key.
func (c *Cluster) Writes(keyspace uint32, key string) (n int) {
	p := c.PartitionOf(keyspace, key)
	c.Set(func() { n = len(p.Data.Versions[key]) })
	return n
}

// AddKeyspace makes a keyspace without a request: with hash partitions, or, if hash is 0, with
// ranges.
func (c *Cluster) AddKeyspace(name string, hash int, splits ...string) (id uint32) {
	c.Change(func() {
		r := &clusterpb.CreateKeyspaceRequest{Name: name, ReplicationFactor: 3}
		if hash > 0 {
			r.HashPartitions = uint32(hash)
		} else {
			r.Partitioning = clusterpb.Partitioning_RANGE
			for _, s := range splits {
				r.SplitAt = append(r.SplitAt, []byte(s))
			}
		}
		id = c.addKeyspaceLocked(r).Id
	})
	return id
}

func (c *Cluster) addKeyspaceLocked(r *clusterpb.CreateKeyspaceRequest) *clusterpb.Keyspace {
	k := &clusterpb.Keyspace{
		Id: uint32(c.nextID), Name: r.Name, Partitioning: r.Partitioning,
		HashPartitions:    r.HashPartitions,
		ReplicationFactor: r.ReplicationFactor, GcWindowSeconds: r.GcWindowSeconds,
		CommitWait: r.CommitWait,
		QuotaBytes: r.QuotaBytes, QuotaRequestsPerSecond: r.QuotaRequestsPerSecond,
		QuotaBytesPerSecond: r.QuotaBytesPerSecond,
		State:               clusterpb.KeyspaceState_ACTIVE,
	}
	if c.WaitingFor != "" {
		k.State = clusterpb.KeyspaceState_CREATING
	}
	c.nextID++
	c.Keyspaces[k.Id] = k
	data, prefix := NewData(), keys.KeyspacePrefix(keys.KeyspaceID(k.Id))
	if r.Partitioning == clusterpb.Partitioning_HASH {
		for h := range r.HashPartitions {
			start := keys.HashPrefix(keys.KeyspaceID(k.Id), uint16(h))
			p := c.addPartitionLocked(data, &clusterpb.Partition{
				Keyspace: k.Id, Hash: h, Start: start, End: keys.PrefixEnd(start), PrefixLength: 6,
			})
			p.HashPartitions = r.HashPartitions
		}
		return k
	}
	start := prefix
	for _, s := range append(slices.Clone(r.SplitAt), nil) {
		end := keys.PrefixEnd(prefix)
		if s != nil {
			end = append(bytes.Clone(prefix), s...)
		}
		c.addPartitionLocked(data, &clusterpb.Partition{Keyspace: k.Id, Start: start, End: end,
			PrefixLength: 4})
		start = end
	}
	return k
}

// addPartitionLocked adds a partition. It distributes replicas and leaders evenly.
func (c *Cluster) addPartitionLocked(data *Data, d *clusterpb.Partition) *Partition {
	d.Id, d.Generation, d.Membership = c.nextID, 1, 1
	c.nextID++
	for i := range min(3, len(c.Nodes)) {
		node := (d.Id+uint64(i))%uint64(len(c.Nodes)) + 1
		d.Replicas = append(d.Replicas, &clusterpb.Replica{Node: node, Replica: uint64(i + 1)})
	}
	p := &Partition{Desc: d, Data: data, Leader: d.Replicas[0].Node, Term: 5}
	c.Partitions[d.Id] = p
	return p
}

// PartitionOf returns the partition of a key.
func (c *Cluster) PartitionOf(keyspace uint32, key string) *Partition {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.Partitions {
		if p.Desc.Keyspace == keyspace && p.Contains(key) {
			return p
		}
	}
	c.TB.Fatalf("no partition for %q", key)
	return nil
}

// Led returns the partitions that a node leads, of all keyspaces.
func (c *Cluster) Led(node uint64) (all []*Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.Partitions {
		if p.Leader == node {
			all = append(all, p)
		}
	}
	return all
}

// Lead makes another replica the leader of a partition, in a new term. With node 0 the partition
// has no leader. The table shows the change only if told is set.
func (c *Cluster) Lead(p *Partition, node uint64, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.Nodes {
		n.closedLocked(p) // all nodes have learned the leader's closed timestamp
	}
	p.Leader = node
	if node == 0 {
		return
	}
	p.Term++
	p.Low = hlc.Max(p.Low, hlc.Timestamp{Wall: c.Nodes[node].Clock.Physical() + int64(MaxOffset)})
	if told {
		c.TellLocked()
	}
}
