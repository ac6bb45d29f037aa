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

// Cluster is nodes that serve the protocol over an in-memory network, in front of one Store. Fields
// are changed with Set, or before there are clients.
type Cluster struct {
	*Store
	Network *memnet.Network
	Nodes   map[uint64]*Node
	// Keyspaces are by id.
	Keyspaces map[uint32]*clusterpb.Keyspace
	// Script is asked about every request for a partition before it is served; nil lets all pass.
	Script Script
	// Heard is told of every answer, without the lock held; nil: it is not.
	Heard func(n *Node, r *kvpb.Request, answer *kvpb.Response)
	// WaitingFor, if it says something, keeps new keyspaces in state CREATING.
	WaitingFor string
	// Created, if not nil, is told of a new keyspace before any client is, with the lock held.
	Created func(*clusterpb.Keyspace)
	// Brings chooses the descriptors that a refusal of a request with another generation brings, of
	// those that there are in the keyspace; nil: all.
	Brings func(of *clusterpb.Partition, all []*clusterpb.Partition) []*clusterpb.Partition
	// NoLeaders keeps leaders out of the table.
	NoLeaders bool
	// NoMerges refuses scans and reads of several partitions, as servers do that are older than
	// these commands. NoMoments refuses scans of several partitions without a timestamp.
	NoMerges, NoMoments bool
	// Requests counts requests by kind (KindOf), and Messages the messages in which there was a
	// request of a kind. Shared counts the reads of several partitions that were not refused so.
	Requests, Messages map[string]int
	Shared             int

	mu       sync.Mutex
	clients  map[string]bool // hosts
	nextID   uint64
	revision uint64
	changed  chan struct{}
	// closed is closed by the first Close.
	closed  chan struct{}
	closing sync.Once
}

// Dialer is how a client on a host reaches the nodes.
func (c *Cluster) Dialer(host string) func(ctx context.Context, address string) (net.Conn, error) {
	c.Set(func() { c.clients[host] = true })
	return c.Network.Dialer(host)
}

// clusterID is every fake cluster's.
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

// Endpoints are the nodes' addresses.
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

// Change makes a change to what the table shows, and tells the watchers.
func (c *Cluster) Change(f func()) {
	c.Set(func() {
		f()
		c.TellLocked()
	})
}

// TellLocked tells the watchers of a change to what the table shows. The caller is in Set, or a
// script.
func (c *Cluster) TellLocked() {
	c.revision++
	close(c.changed)
	c.changed = make(chan struct{})
}

// MessagesWith is how many messages with a request of a kind nodes got so far.
func (c *Cluster) MessagesWith(kind string) (n int) {
	c.Set(func() { n = c.Messages[kind] })
	return n
}

// RequestsOf is how many requests of a kind nodes were sent so far.
func (c *Cluster) RequestsOf(kind string) (n int) {
	c.Set(func() { n = c.Requests[kind] })
	return n
}

// Writes counts the versions of a key.
func (c *Cluster) Writes(keyspace uint32, key string) (n int) {
	p := c.PartitionOf(keyspace, key)
	c.Set(func() { n = len(p.Data.Versions[key]) })
	return n
}

// AddKeyspace makes a keyspace without asking the protocol: one of hash partitions, or, if hash is
// 0, one of ranges.
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
		State:      clusterpb.KeyspaceState_ACTIVE,
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

// addPartitionLocked spreads replicas and leaders evenly.
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

// PartitionOf finds the partition that holds a key.
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

// Led are the partitions that a node leads, of all keyspaces.
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

// Lead makes another replica the leader of a partition, in a new term; node 0: it has none. The
// table tells only if told is set.
func (c *Cluster) Lead(p *Partition, node uint64, told bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.Nodes {
		n.closedLocked(p) // all have heard of what the leader has closed
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
