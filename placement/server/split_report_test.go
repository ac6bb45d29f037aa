package server

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// splitCase is a core with partitions of which some are to split, and nodes that say what the test
// has them say.
type splitCase struct {
	t      *testing.T
	core   *core
	client *coreclient.Client
	// parent is partition 100, of keyspace 1, whole; order has both parts as they should become.
	parent *clusterpb.Partition
	order  *clusterpb.Order
	term   uint64
}

// inSplitCase has a split of partition 100 at "m" recorded. There are two more partitions, 101 in
// the same keyspace and 102 in another one, of which 101 is to split too, with the child 104;
// 105 to 107 are for a keyspace that waits.
func inSplitCase(t *testing.T, f func(*splitCase)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for n := range 3 {
			_, stop := c.register(client, n, "")
			defer stop()
		}
		create(t, c, client, ranged("x", "t"))
		create(t, c, client, ranged("y"))
		s := &splitCase{t: t, core: c, client: client, term: 5}
		for i, key := range []string{"m", "w"} {
			r, err := client.SplitPartition(t.Context(), &clusterpb.SplitPartitionRequest{Keyspace: "x",
				Key: []byte(key)})
			if err != nil || r.Child != uint64(103+i) || r.Partition != uint64(100+i) {
				t.Fatalf("%v, %v", r, err)
			}
		}
		waits := hash("z", 3, 3)
		waits.Placement = "zone=nowhere"
		if _, err := client.CreateKeyspace(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		for _, p := range partitionsIn(t, client, "x") {
			if p.Partition.Id == 100 {
				s.parent = p.Partition
			}
		}
		c.await("there is an order", func() bool {
			s.say(&clusterpb.PartitionReport{Partition: 100, Generation: 1, Membership: 1})
			return s.order != nil
		})
		f(s)
	})
}

// say has the node that leads partition 100 report.
func (s *splitCase) say(reports ...*clusterpb.PartitionReport) {
	s.t.Helper()
	s.term++
	for _, r := range reports {
		r.Term = s.term
	}
	response, err := s.client.Heartbeat(s.t.Context(), &clusterpb.HeartbeatRequest{
		Cluster: testCluster, Node: 1, Server: 1000, Reports: reports})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, o := range response.Orders {
		if o.Target.Id == 100 && o.Child != nil {
			s.order = o
		}
	}
}

// table is all partitions.
func (s *splitCase) table() (all []*clusterpb.Partition) {
	for _, p := range partitionsIn(s.t, s.client, "") {
		all = append(all, p.Partition)
	}
	return all
}

// report is that of the leader of partition 100 after its split.
func (s *splitCase) report() (r *clusterpb.PartitionReport, child *clusterpb.Partition) {
	target := proto.Clone(s.order.Target).(*clusterpb.Partition)
	child = proto.Clone(s.order.Child).(*clusterpb.Partition)
	child.SplitIndex = 17
	return &clusterpb.PartitionReport{Partition: 100, Generation: target.Generation,
		Membership: target.Membership, Described: target,
		SplitOff: []*clusterpb.Partition{child}}, child
}

// Reports of splits that cannot be, whether by a mistake or by malice, change nothing in the table;
// a true one that comes afterwards is taken.
func TestHostileReportsOfSplits(t *testing.T) {
	at := func(key string) []byte { return append(keys.KeyspacePrefix(1), key...) }
	type report = clusterpb.PartitionReport
	type partition = clusterpb.Partition
	another := func(r *report, change func(*partition)) {
		p := proto.Clone(r.SplitOff[0]).(*partition)
		change(p)
		r.SplitOff = append(r.SplitOff, p)
	}
	for name, spoil := range map[string]func(r *report, child *partition){
		"nothing split off":    func(r *report, _ *partition) { r.SplitOff = nil },
		"a hole before it":     func(_ *report, c *partition) { c.Start = at("n") },
		"a hole after it":      func(_ *report, c *partition) { c.End = at("s") },
		"it overlaps to left":  func(_ *report, c *partition) { c.Start = at("l") },
		"it overlaps to right": func(_ *report, c *partition) { c.End = at("u") },
		"the parent has less":  func(r *report, _ *partition) { r.Described.End = at("k") },
		"the parent has more":  func(r *report, _ *partition) { r.Described.End = at("u") },
		"the parent has none":  func(r *report, _ *partition) { r.Described.End = r.Described.Start },
		"the parent's right":   func(r *report, _ *partition) { r.Described.Start = at("c") },
		"the whole again":      func(r *report, _ *partition) { r.Described.End = at("t") },
		"another key": func(r *report, c *partition) {
			r.Described.End, c.Start = at("k"), at("k")
		},
		"no generation": func(r *report, c *partition) {
			r.Described.Generation, r.Generation = 1, 1
		},
		"the child's is not up": func(_ *report, c *partition) { c.Generation = 1 },
		"a generation too high": func(r *report, c *partition) {
			r.Described.Generation, r.Generation, c.Generation = math.MaxUint64, math.MaxUint64,
				math.MaxUint64
		},
		"the child's too high": func(_ *report, c *partition) { c.Generation = math.MaxUint64 },
		"membership too high":  func(_ *report, c *partition) { c.Membership = math.MaxUint64 },
		"membership too low":   func(_ *report, c *partition) { c.Membership = 0 },
		"the parent's id":      func(_ *report, c *partition) { c.Id = 100 },
		"a neighbour's id":     func(_ *report, c *partition) { c.Id = 101 },
		"another keyspace's":   func(_ *report, c *partition) { c.Id = 102 },
		"another child's":      func(_ *report, c *partition) { c.Id = 104 },
		"one that is made":     func(_ *report, c *partition) { c.Id = 106 },
		"one never given":      func(_ *report, c *partition) { c.Id = 108 },
		"one of the core's":    func(_ *report, c *partition) { c.Id = 1 },
		"no id":                func(_ *report, c *partition) { c.Id = 0 },
		"a wrong keyspace":     func(_ *report, c *partition) { c.Keyspace = 2 },
		"wrong keys": func(_ *report, c *partition) {
			c.Keyspace, c.Start, c.End = 2, append(keys.KeyspacePrefix(2), 'm'),
				append(keys.KeyspacePrefix(2), 't')
		},
		"a wrong hash number":   func(_ *report, c *partition) { c.Hash = 7 },
		"a wrong prefix":        func(_ *report, c *partition) { c.PrefixLength = 6 },
		"the parent's hash":     func(r *report, _ *partition) { r.Described.Hash = 7 },
		"the parent's origin":   func(r *report, _ *partition) { r.Described.SplitFrom = 101 },
		"it split from none":    func(_ *report, c *partition) { c.SplitFrom = 0 },
		"it split from another": func(_ *report, c *partition) { c.SplitFrom = 101 },
		"it split from itself":  func(_ *report, c *partition) { c.SplitFrom = c.Id },
		"it has no replicas":    func(_ *report, c *partition) { c.Replicas = nil },
		"it has others":         func(_ *report, c *partition) { c.Replicas[0].Node = 9 },
		"it has none of those": func(_ *report, c *partition) {
			c.Replicas = []*clusterpb.Replica{{Node: 1, Replica: 9}}
		},
		"a role that is not":     func(_ *report, c *partition) { c.Replicas[0].Role = 17 },
		"a next replica too low": func(_ *report, c *partition) { c.NextReplica = math.MaxUint64 },
		"twice the same":         func(r *report, _ *partition) { another(r, func(*partition) {}) },
		"twice the same span": func(r *report, _ *partition) {
			another(r, func(p *partition) { p.Id = 104 })
		},
		"one within it": func(r *report, _ *partition) {
			another(r, func(p *partition) { p.Id, p.Start = 104, at("p") })
		},
		"two, and a gap": func(r *report, c *partition) {
			another(r, func(p *partition) { p.Id, p.Start, p.SplitFrom = 104, at("q"), c.Id })
			c.End = at("p")
		},
		"two in a circle": func(r *report, c *partition) {
			another(r, func(p *partition) { p.Id, p.Start, p.SplitFrom = 104, at("p"), c.Id })
			c.End, c.SplitFrom = at("p"), 104
		},
		"a crowd": func(r *report, c *partition) {
			for i := range 5000 {
				another(r, func(p *partition) { p.Id = uint64(1000 + i) })
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inSplitCase(t, func(s *splitCase) {
				before := s.table()
				r, child := s.report()
				spoil(r, child)
				s.say(r)
				time.Sleep(3 * time.Second) // virtual
				s.unchanged(before)
				// The same from the child's own leader, beside the parent's report.
				honest, own := s.report()
				if !proto.Equal(own, child) {
					honest.SplitOff, honest.Described, honest.Generation = nil, r.Described, r.Generation
					s.say(honest, &clusterpb.PartitionReport{Partition: child.Id,
						Generation: child.Generation, Membership: child.Membership, Described: child})
					time.Sleep(3 * time.Second) // virtual
					s.unchanged(before)
				}
				s.core.await("the true one is taken", func() bool {
					r, child := s.report()
					s.say(r)
					time.Sleep(time.Second) // virtual
					now := s.table()
					return slices.ContainsFunc(now, func(p *clusterpb.Partition) bool {
						return proto.Equal(p, child)
					}) && len(now) == len(before)+1
				})
			})
		})
	}
}

// A node offers a replica that is left over from before its partition was consumed, beside what has
// split off since. It is neither listed nor in the way.
func TestLeftOverReplicaIsOffered(t *testing.T) {
	for _, begins := range []string{"p", "q"} {
		t.Run(begins, func(t *testing.T) {
			inSplitCase(t, func(s *splitCase) {
				before := s.table()
				r, child := s.report()
				s.say(r)
				s.core.await("it has split", func() bool { return len(s.table()) == len(before)+1 })
				ordered, err := s.client.SplitPartition(s.t.Context(), &clusterpb.SplitPartitionRequest{
					Keyspace: "x", Key: []byte("p")})
				if err != nil {
					s.t.Fatal(err)
				}
				at := func(key string) []byte { return append(keys.KeyspacePrefix(1), key...) }
				next := proto.Clone(child).(*clusterpb.Partition)
				next.Generation, next.End = child.Generation+1, at("p")
				piece := proto.Clone(child).(*clusterpb.Partition)
				piece.Id, piece.Generation = ordered.Child, next.Generation
				piece.Start, piece.SplitFrom = at("p"), child.Id
				leftOver := proto.Clone(piece).(*clusterpb.Partition)
				leftOver.Id, leftOver.Generation, leftOver.SplitFrom = 107, child.Generation-1, 100
				leftOver.Start, leftOver.End = at(begins), at("r")
				s.say(&clusterpb.PartitionReport{Partition: child.Id, Generation: next.Generation,
					Membership: next.Membership, Described: next,
					SplitOff: []*clusterpb.Partition{leftOver, piece}})
				s.core.await("it has split again", func() bool { return len(s.table()) == len(before)+2 })
				for _, p := range s.table() {
					if p.Id == leftOver.Id {
						s.t.Errorf("what is left over is listed: %v", p)
					}
				}
			})
		})
	}
}

func (s *splitCase) unchanged(before []*clusterpb.Partition) {
	s.t.Helper()
	if now := s.table(); !slices.EqualFunc(before, now, func(a, b *clusterpb.Partition) bool {
		return proto.Equal(a, b)
	}) {
		s.t.Fatalf("the table was %v, and is %v", before, now)
	}
}

// What the child's own leader says fills the gap if the parent's has no replica of the child,
// whichever comes first.
func TestTheChildsLeaderTellsOfIt(t *testing.T) {
	for _, first := range []string{"parent", "child"} {
		t.Run(first, func(t *testing.T) {
			inSplitCase(t, func(s *splitCase) {
				before := s.table()
				r, child := s.report()
				r.SplitOff = nil
				own := &clusterpb.PartitionReport{Partition: child.Id, Generation: child.Generation,
					Membership: child.Membership, Described: child}
				reports := []*clusterpb.PartitionReport{r, own}
				if first == "child" {
					slices.Reverse(reports)
				}
				s.say(reports[0])
				time.Sleep(5 * time.Second) // virtual
				s.unchanged(before)
				s.say(reports[1])
				time.Sleep(5 * time.Second) // virtual
				if now := s.table(); len(now) != len(before)+1 {
					s.t.Fatalf("%d partitions of %d", len(now), len(before)+1)
				}
				for _, p := range partitionsIn(s.t, s.client, "x") {
					if p.Partition.Id == child.Id && p.LeaderNode != 1 {
						s.t.Errorf("the child's leader is on node %d", p.LeaderNode)
					}
				}
			})
		})
	}
}

// Many splits that are reported at once are written in few transactions, and each of them whole.
func TestManySplitsAtOnce(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		var at []string
		for i := range 299 {
			at = append(at, fmt.Sprintf("k%03d", i))
		}
		f.create(ranged("x", at...))
		f.await(time.Minute, "all is well", func() bool { return f.idle() })
		f.mu.Lock()
		f.reporting = splitReporting{unsettled: 20 * time.Second, done: time.Hour}
		f.mu.Unlock()
		for _, key := range at {
			f.split("x", key+"+")
		}
		f.await(5*time.Minute, "all have split", func() bool {
			if wrong := tiled(partitionsIn(t, f.client, "x"),
				keys.PrefixSpan(keys.KeyspacePrefix(1))); wrong != "" {
				t.Fatal(wrong)
			}
			return f.idle() && f.asTable("x")
		})
		if n := len(partitionsIn(t, f.client, "x")); n != 599 {
			t.Errorf("%d partitions", n)
		}
	})
}
