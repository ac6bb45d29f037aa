package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// divider gives the orders by which partitions of keyspace 7 split at random keys, until there are
// so many.
type divider struct {
	c      *cluster
	random *rand.Rand
	most   int
	// chain: only what has split off last splits, at its first key.
	chain bool
	// ordered are the orders by partition and generation: the same until it is carried out.
	ordered map[[2]uint64]*clusterpb.Order
}

func key(i int) string { return fmt.Sprintf("k%03d", i) }

const splitKeys = 200

// order is called with the core locked.
func (s *divider) order(p *clusterpb.Partition) *clusterpb.Order {
	if p.GetKeyspace() != 7 {
		return nil
	}
	at := [2]uint64{p.Id, p.Generation}
	if o := s.ordered[at]; o != nil {
		return o
	}
	parts := 0
	for _, other := range s.c.core.table.Partitions() {
		if other.Keyspace == 7 {
			parts++
		}
	}
	var inside []string
	for i := range splitKeys {
		if k := key(i); keys.PartitionContains(p, []byte(k)) &&
			!bytes.Equal(keys.InternalKey(p, []byte(k)), p.Start) {
			inside = append(inside, k)
		}
	}
	if parts >= s.most || len(inside) == 0 ||
		s.chain && !bytes.Equal(p.End, keys.PrefixEnd(keys.KeyspacePrefix(7))) {
		return nil
	}
	chosen := s.random.IntN(len(inside))
	if s.chain {
		chosen = 0
	}
	left := proto.Clone(p).(*clusterpb.Partition)
	left.Generation++
	left.End = keys.InternalKey(p, []byte(inside[chosen]))
	child := proto.Clone(p).(*clusterpb.Partition)
	child.Id, child.Generation, child.Start, child.SplitFrom = s.c.next, left.Generation, left.End,
		p.Id
	child.SplitIndex = 0
	s.c.next++
	s.ordered[at] = &clusterpb.Order{Operator: 1, Target: left, Child: child}
	return s.ordered[at]
}

// newDivider makes keyspace 7, of one partition.
func newDivider(c *cluster, seed uint64, most int) *divider {
	c.core.follow = true
	s := &divider{c: c, random: rand.New(rand.NewPCG(seed, 25)), most: most,
		ordered: make(map[[2]uint64]*clusterpb.Order)}
	prefix := keys.KeyspacePrefix(7)
	p := &clusterpb.Partition{Id: c.next, Keyspace: 7, Start: prefix, End: keys.PrefixEnd(prefix),
		Generation: 1, Membership: 1, PrefixLength: keys.KeyspacePrefixLength}
	c.next++
	for id := range uint64(3) {
		p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: id + 1, Replica: id + 1})
	}
	c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 7, Name: "ks7",
		Partitioning: clusterpb.Partitioning_RANGE, ReplicationFactor: 3, GcWindowSeconds: 3600,
		State: clusterpb.KeyspaceState_ACTIVE}}, Partitions: []*clusterpb.Partition{p}})
	return s
}

// begin has partitions split from now on.
func (s *divider) begin() {
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	s.c.core.orders = s.order
}

// partitions are those of the core's table, in order. They cover the keyspace exactly once.
func (s *divider) partitions() []*clusterpb.Partition {
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	var all []*clusterpb.Partition
	for _, p := range s.c.core.table.Partitions() {
		if p.Keyspace == 7 {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *clusterpb.Partition) int {
		return bytes.Compare(a.Start, b.Start)
	})
	at := keys.KeyspacePrefix(7)
	for _, p := range all {
		if !bytes.Equal(p.Start, at) {
			s.c.t.Fatalf("the table has a hole or an overlap: %s after %s: %v", keys.PartitionSpan(p),
				keys.Pretty(at), all)
		}
		at = p.End
	}
	return all
}

// of is the partition of a key, as the core has it.
func (s *divider) of(k string) *clusterpb.Partition {
	for _, p := range s.partitions() {
		if keys.PartitionContains(p, []byte(k)) {
			return p
		}
	}
	s.c.t.Fatalf("no partition has %s", k)
	return nil
}

// do sends a request for a key to the partition that has it, until it is taken.
func (s *divider) do(k string, request func(*clusterpb.Partition, uint64) *kvpb.Request,
) *kvpb.Response {
	var last *kvpb.Response
	for range 300 {
		p := s.of(k)
		r := s.c.do(func(term uint64) *kvpb.Request { return request(p, term) }, p.Id, time.Minute)
		switch last = r; r.GetError().GetCode() {
		case kvpb.ErrorCode_STALE_EPOCH, kvpb.ErrorCode_KEY_OUT_OF_SPAN:
			time.Sleep(100 * time.Millisecond) // virtual: until the core has heard of the split
		default:
			return r
		}
	}
	s.c.t.Fatalf("no partition takes %s: %v", k, last)
	return nil
}

func (s *divider) put(k, value string) {
	if r := s.do(k, func(p *clusterpb.Partition, term uint64) *kvpb.Request {
		return put(p, term, k, value)
	}); r.Error != nil {
		s.c.t.Fatalf("put %s: %v", k, r.Error)
	}
}

func (s *divider) expect(k, value string) {
	if r := s.do(k, func(p *clusterpb.Partition, term uint64) *kvpb.Request {
		return get(p, term, k)
	}); r.Error != nil || string(r.GetGet().GetValue()) != value {
		s.c.t.Fatalf("get %s: %v, want %q", k, r, value)
	}
}

// overwrite writes every key anew, finds what it has written, and checks.
func (s *divider) overwrite() {
	s.c.t.Helper()
	for i := range splitKeys {
		s.put(key(i), "after")
		s.expect(key(i), "after")
	}
	s.check()
}

// check waits until all replicas of all partitions are there and have the same, and counts what
// they hold.
func (s *divider) check() {
	c := s.c
	for _, p := range s.partitions() {
		id := keys.PartitionID(p.Id)
		var why string
		c.await("the replicas of a partition are the same", 3*time.Minute, func() bool {
			sums := map[uint64]bool{}
			for _, r := range p.Replicas {
				h := c.nodes[r.Node].replicas.Get(id)
				if h == nil {
					why = fmt.Sprintf("node %d has none of partition %d", r.Node, p.Id)
					return false
				}
				index, sum, err := h.Replica.Checksum()
				if err != nil {
					return false
				}
				sums[index<<32^sum] = true
			}
			why = fmt.Sprintf("%v", sums)
			return len(sums) == 1
		})
		for _, r := range p.Replicas {
			recorded, counted, err := storage.Recount(context.Background(), c.nodes[r.Node].state, id)
			if err != nil || recorded.Stats != counted {
				c.t.Errorf("partition %d on node %d holds %+v, and says %+v: %v %s", p.Id, r.Node, counted,
					recorded.Stats, err, why)
			}
		}
	}
}

// A partition splits again and again, while nodes lose power at any moment, with what their states
// had not written. Every write that was answered is there afterwards, every key is in one
// partition, and the replicas are the same.
func TestPartitionsSplit(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { splitAndCrash(t, seed) })
		})
	}
}

// splitAndCrash has nodes crash, but with seed 0.
func splitAndCrash(t *testing.T, seed uint64) {
	const parts = 12
	c := newCluster(t, 3, nil)
	s := newDivider(c, seed, parts)
	crash := rand.New(rand.NewPCG(seed, 26))
	is := map[string]string{}
	write := func(round int) {
		for i := crash.IntN(7); i < splitKeys; i += 7 {
			is[key(i)] = fmt.Sprint(round)
			s.put(key(i), is[key(i)])
		}
	}
	write(0)
	s.begin()
	for round := 1; len(s.partitions()) < parts || round < 5; round++ {
		if round == 200 {
			t.Fatalf("%d partitions after a long time", len(s.partitions()))
		}
		write(round)
		time.Sleep(time.Duration(crash.Int64N(int64(3 * time.Second)))) // virtual
		if seed == 0 {
			continue
		}
		m := c.nodes[1+crash.Uint64N(3)]
		switch crash.IntN(3) {
		case 0:
			m.crash()
			m.start()
		case 1:
			if err := m.state.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range c.nodes {
		c.awaitServing(m)
	}
	for k, value := range is {
		s.expect(k, value)
	}
	s.check()
	if seed == 0 {
		return
	}
	// Once more, with nothing but what is on disk.
	for _, m := range c.nodes {
		m.crash()
	}
	for _, m := range c.nodes {
		m.start()
	}
	for k, value := range is {
		s.expect(k, value)
	}
	s.check()
	for _, m := range c.nodes {
		if failed := m.lifecycle.Failed(); len(failed) > 0 {
			t.Errorf("replicas failed on node %d: %v", m.id, failed)
		}
	}
}

// A child is served a moment after the split, with one election: the other replicas hear what they
// were asked before they were born, and are born at once.
func TestChildServesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		s := newDivider(c, 1, 2)
		for i := range splitKeys {
			s.put(key(i), "before")
		}
		parent := s.partitions()[0].Id
		leads, _ := c.leaderOf(parent)
		m := c.nodes[leads]
		s.begin()
		for range 60_000 {
			if m.replicas.Get(keys.PartitionID(parent+1)) != nil {
				break
			}
			time.Sleep(time.Millisecond) // virtual
		}
		child := m.replicas.Get(keys.PartitionID(parent + 1))
		for range 3 {
			time.Sleep(time.Millisecond) // virtual
		}
		synctest.Wait()
		if !child.Replica.Serving() {
			t.Error("the child is not served")
		}
	})
}

// A crash comes when the child's base is on disk, and before its log is. The replica is whole after
// the start; and what lies in no partition's span is gone.
func TestBaseWithoutLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		s := newDivider(c, 1, 2)
		for i := range splitKeys {
			s.put(key(i), "before")
		}
		follow := func(follow bool) {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			c.core.follow = follow
		}
		follow(false) // a table that listed the child would have the replica created anew
		child := keys.PartitionID(s.partitions()[0].Id + 1)
		s.begin()
		m := c.nodes[2]
		c.await("it splits", time.Minute, func() bool {
			for _, x := range c.nodes {
				if x.replicas.Get(child) == nil {
					return false
				}
			}
			return true
		})
		outside := keys.AppendTimestamp(keys.DataKey(append(keys.KeyspacePrefix(8), 'x')),
			hlc.Timestamp{Wall: 5})
		b := m.state.NewBatch()
		if err := b.Set(outside, []byte("of no partition"), nil); err != nil {
			t.Fatal(err)
		}
		if err := m.state.Commit(b); err != nil {
			t.Fatal(err)
		}
		b.Close()
		if err := m.state.Flush(); err != nil {
			t.Fatal(err)
		}
		// All of them, so that no leader remembers what a replica has acknowledged that was, as its
		// disk has it afterwards, never open.
		for _, x := range c.nodes {
			x.stop()
		}
		log, err := engine.OpenLog(engine.Options{FS: m.fs, Dir: "log", MemTableBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		lost := log.NewBatch()
		start := binary.BigEndian.AppendUint64([]byte{'g'}, uint64(child))
		if err := lost.DeleteRange(start, keys.PrefixEnd(start), nil); err != nil {
			t.Fatal(err)
		}
		if err := log.Commit(lost, true); err != nil {
			t.Fatal(err)
		}
		lost.Close()
		log.Close()
		for _, x := range c.nodes {
			x.start()
		}
		if m.replicas.Get(child) == nil {
			t.Error("the replica is not opened")
		}
		if _, closer, err := m.state.Get(outside); err == nil {
			closer.Close()
			t.Error("what is in no partition's span is still there")
		}
		follow(true)
		c.await("the table has both", time.Minute, func() bool { return len(s.partitions()) == 2 })
		s.overwrite()
	})
}

// A table that does not list a partition that has split off has it removed nowhere: only the drop
// of its keyspace does.
func TestUnlistedChildStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		s := newDivider(c, 1, 2)
		s.put(key(5), "before")
		c.core.follow = false // the core does not hear of the split
		s.begin()
		children := func() (n int) {
			for _, m := range c.nodes {
				for _, h := range m.replicas.All() {
					if h.Replica.Descriptor().GetSplitFrom() != 0 {
						n++
					}
				}
			}
			return n
		}
		c.await("it splits", time.Minute, func() bool { return children() == 3 })
		c.core.compact() // everything is sent anew, and looked at
		for _, m := range c.nodes {
			m.stop()
			m.start()
		}
		time.Sleep(30 * time.Second) // virtual
		if n := children(); n != 3 {
			t.Fatalf("%d of 3 replicas are left of a partition that the table does not list", n)
		}
		c.core.mu.Lock()
		c.core.follow = true
		c.core.mu.Unlock()
		c.await("the table has both", time.Minute, func() bool { return len(s.partitions()) == 2 })
		u := &clusterpb.TableUpdate{RemovedKeyspaces: []uint32{7}}
		for _, p := range s.partitions() {
			u.RemovedPartitions = append(u.RemovedPartitions, p.Id)
		}
		c.core.update(u)
		c.await("all replicas go with the keyspace", 2*time.Minute, func() bool {
			for _, m := range c.nodes {
				if len(m.replicas.All()) > 0 {
					return false
				}
			}
			return true
		})
	})
}

// A node that was away applies a split whose child has left the node meanwhile: the replica that is
// born goes again.
func TestBornAfterItWasNamedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 4, nil)
		s := newDivider(c, 1, 2)
		for i := range splitKeys {
			s.put(key(i), "before")
		}
		away, parent := c.nodes[3], keys.PartitionID(s.partitions()[0].Id)
		c.network.setCut(3, true)
		s.begin()
		c.await("it splits", time.Minute, func() bool { return len(s.partitions()) == 2 })
		child := s.partitions()[1]
		id := keys.PartitionID(child.Id)
		// As if the child had moved to node 4 meanwhile.
		moved := proto.Clone(child).(*clusterpb.Partition)
		moved.Membership += 3
		moved.NextReplica = 5
		moved.Replicas[2] = &clusterpb.Replica{Node: 4, Replica: 4}
		c.core.update(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{moved}})
		away.stop()
		away.start()
		c.await("the node knows", time.Minute, func() bool {
			p := away.tables.Load().Partition(id)
			return p != nil && p.Membership == moved.Membership
		})
		c.network.setCut(3, false)
		c.await("a replica is born, and goes", time.Minute, func() bool {
			identity, known, err := away.host.Log().Identity(id)
			return err == nil && known && identity.Removed && away.replicas.Get(id) == nil
		})
		if d := away.replicas.Get(parent).Replica.Descriptor(); d.GetGeneration() != 2 {
			t.Errorf("the parent is of generation %d", d.GetGeneration())
		}
	})
}

// The parent's replica leaves a node, on which it was created with all that is the child's by now:
// only what is still its own goes with it.
func TestParentLeavesTheChild(t *testing.T) {
	for _, crash := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 4, nil)
			s := newDivider(c, 1, 2)
			for i := range splitKeys {
				s.put(key(i), "before")
			}
			s.begin()
			c.await("it splits", time.Minute, func() bool { return len(s.partitions()) == 2 })
			parent, child := s.partitions()[0], s.partitions()[1]
			m := c.nodes[3]
			c.await("the child is there", time.Minute,
				func() bool { return m.replicas.Get(keys.PartitionID(child.Id)) != nil })
			moved := proto.Clone(parent).(*clusterpb.Partition)
			moved.Membership += 3
			moved.NextReplica = 5
			moved.Replicas[2] = &clusterpb.Replica{Node: 4, Replica: 4}
			c.core.update(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{moved}})
			c.await("the parent's replica goes", time.Minute,
				func() bool { return m.replicas.Get(keys.PartitionID(parent.Id)) == nil })
			if crash {
				m.crash()
				m.start()
			}
			c.await("the child is there", time.Minute, func() bool {
				h := m.replicas.Get(keys.PartitionID(child.Id))
				return h != nil && h.Group.Failed() == nil
			})
			recorded, counted, err := storage.Recount(context.Background(), m.state,
				keys.PartitionID(child.Id))
			if err != nil || recorded.Stats != counted || counted.LiveKeys == 0 {
				t.Errorf("the child holds %+v, and says %+v: %v", counted, recorded.Stats, err)
			}
			if problems, err := m.CheckState(context.Background()); len(problems) > 0 || err != nil {
				t.Errorf("%v, %v", problems, err)
			}
		})
	}
}

// Only a replica with which a partition is founded knows its voters from the table. One of a
// partition that has split, or has split off, begins with nothing.
func TestVotersFromTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		for i, p := range c.createHash(2, 3) {
			x := proto.Clone(p).(*clusterpb.Partition)
			x.Id += 1000 // the node creates a replica of the other meanwhile
			switch i {
			case 1:
				x.Generation++ // it has split
			case 2:
				x.SplitFrom, x.SplitIndex = 99, 12
			}
			id, err := c.nodes[1].lifecycle.IdentityOf(x)
			if err != nil || (len(id.Voters) > 0) != (i == 0) {
				t.Errorf("%v is to be created with the voters %v: %v", x, id.Voters, err)
			}
		}
	})
}
