package node

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// reshaper gives the orders by which partitions of keyspace 7 split and merge at random.
type reshaper struct {
	*divider
	// wanted are the left neighbours of partitions that are to be merged with those.
	wanted map[uint64]uint64
	// merging are partitions that are to merge with their right neighbours, as long as they have a
	// generation.
	merging map[[2]uint64]bool
	decided map[[2]uint64]bool
}

func newReshaper(c *cluster, seed uint64, most int) *reshaper {
	return &reshaper{divider: newDivider(c, seed, most), wanted: make(map[uint64]uint64),
		merging: make(map[[2]uint64]bool), decided: make(map[[2]uint64]bool)}
}

func (s *reshaper) begin() {
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	s.c.core.orders = s.order
}

// end gives no orders any more.
func (s *reshaper) end() {
	s.c.core.mu.Lock()
	defer s.c.core.mu.Unlock()
	s.c.core.orders = nil
}

// order is called with the core locked.
func (s *reshaper) order(p *clusterpb.Partition) *clusterpb.Order {
	if p.GetKeyspace() != 7 || p.Frozen != nil {
		return nil
	}
	table := s.c.core.table
	if left := table.Partition(keys.PartitionID(s.wanted[p.Id])); left != nil &&
		s.merging[[2]uint64{left.Id, left.Generation}] {
		at := s.c.core.reporter[left.Id]
		if at == s.c.core.reporter[p.Id] {
			return nil
		}
		for _, r := range p.Replicas {
			if r.Node == at {
				return &clusterpb.Order{Operator: 2, Target: p, TransferTo: r.Replica}
			}
		}
		return nil
	}
	delete(s.wanted, p.Id)
	at := [2]uint64{p.Id, p.Generation}
	right := s.rightOf(p)
	if !s.decided[at] {
		s.decided[at] = true
		s.merging[at] = right != nil && s.random.IntN(2) == 0
	}
	if !s.merging[at] {
		return s.divider.order(p)
	}
	if right == nil || right.Frozen != nil || s.merging[[2]uint64{right.Id, right.Generation}] {
		delete(s.merging, at)
		delete(s.decided, at)
		return nil
	}
	s.merging[[2]uint64{right.Id, right.Generation}] = false
	s.decided[[2]uint64{right.Id, right.Generation}] = true
	s.wanted[right.Id] = p.Id
	target := proto.Clone(p).(*clusterpb.Partition)
	target.End, target.Generation = right.End, max(p.Generation, right.Generation)+1
	return &clusterpb.Order{Operator: 3, Target: target, Consume: right}
}

func (s *reshaper) rightOf(p *clusterpb.Partition) *clusterpb.Partition {
	for _, other := range s.c.core.table.Partitions() {
		if other.Keyspace == p.Keyspace && bytes.Equal(other.Start, p.End) {
			return other
		}
	}
	return nil
}

// Partitions split and merge again and again, while nodes lose power at any moment, with what their
// states had not written, and fall behind for so long that they need snapshots. Every write that
// was answered is there afterwards, every key is in one partition, and the replicas are the same.
func TestPartitionsMerge(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { reshapeAndCrash(t, seed) })
		})
	}
}

// reshapeAndCrash has nodes crash, but with seed 0.
func reshapeAndCrash(t *testing.T, seed uint64) {
	c := newCluster(t, 3, nil)
	s := newReshaper(c, seed, 8)
	crash := rand.New(rand.NewPCG(seed, 27))
	is := map[string]string{}
	write := func(round int) {
		for i := crash.IntN(7); i < splitKeys; i += 7 {
			is[key(i)] = fmt.Sprint(round)
			s.put(key(i), is[key(i)])
		}
	}
	write(0)
	s.begin()
	for round := 1; round < 30; round++ {
		write(round)
		time.Sleep(time.Duration(crash.Int64N(int64(3 * time.Second)))) // virtual
		if seed == 0 {
			continue
		}
		m := c.nodes[1+crash.Uint64N(3)]
		switch crash.IntN(6) {
		case 0, 1:
			m.crash()
			m.start()
		case 2:
			if err := m.state.Flush(); err != nil {
				t.Fatal(err)
			}
		case 3:
			c.network.setCut(m.id, true)
			time.Sleep(time.Duration(crash.Int64N(int64(20 * time.Second)))) // virtual
			c.network.setCut(m.id, false)
		case 4:
			m.stop()
			m.start()
		}
	}
	s.end()
	for _, m := range c.nodes {
		c.awaitServing(m)
	}
	for k, value := range is {
		s.expect(k, value)
	}
	s.atRest()
	for _, m := range c.nodes {
		m.crash()
	}
	for _, m := range c.nodes {
		m.start()
	}
	for k, value := range is {
		s.expect(k, value)
	}
	s.atRest()
	t.Logf("%d partitions, of %d that there were", len(s.partitions()), int(c.next)-1)
}

// atRest waits until every node has the replicas of the table and no other ones, and they have the
// same.
func (s *reshaper) atRest() {
	c := s.c
	for _, m := range c.nodes {
		why := ""
		defer func() {
			if c.t.Failed() {
				c.t.Log(why)
			}
		}()
		c.await("a node has the replicas of the table", 3*time.Minute, func() bool {
			all := m.replicas.All()
			why = fmt.Sprintf("%d replicas on node %d", len(all), m.id)
			for id, h := range all {
				p := m.tables.Load().Partition(id)
				if p == nil || h.Replica.Descriptor().GetFrozen() != nil ||
					keys.CompareEpochs(p, h.Replica.Descriptor()) != 0 {
					why += fmt.Sprintf(": partition %s is %v here, and in the table %v", id,
						h.Replica.Descriptor(), p)
					return false
				}
			}
			return len(all) == len(s.partitions())
		})
	}
	s.check()
	for _, m := range c.nodes {
		if failed := m.lifecycle.Failed(); len(failed) > 0 {
			c.t.Errorf("replicas failed on node %d: %v", m.id, failed)
		}
		if problems, err := m.CheckState(context.Background()); len(problems) > 0 || err != nil {
			c.t.Errorf("node %d: %v, %v", m.id, problems, err)
		}
	}
}
