package server

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// inMergeCase has a merge of partitions 100 and 101 recorded, of which node 1 leads both. To the
// right of them are 102, which is to split, and 103, both led by node 1 too; 104 is of another
// keyspace.
func inMergeCase(t *testing.T, f func(*splitCase)) {
	t.Helper()
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for n := range 3 {
			_, stop := c.register(client, n, "")
			defer stop()
		}
		create(t, c, client, ranged("x", "m", "r", "t"))
		create(t, c, client, ranged("y"))
		s := &splitCase{t: t, core: c, client: client, term: 5}
		s.say(s.leads(100), s.leads(101), s.leads(102), s.leads(103), s.leads(104))
		if _, err := client.MergePartition(t.Context(), &clusterpb.MergePartitionRequest{
			Partition: 100}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.SplitPartition(t.Context(), &clusterpb.SplitPartitionRequest{
			Keyspace: "x", Key: []byte("s")}); err != nil {
			t.Fatal(err)
		}
		for _, p := range partitionsIn(t, client, "x") {
			if p.Partition.Id == 100 {
				s.parent = p.Partition
			}
		}
		// The replicas wanted as leaders may be elsewhere than on node 1: what is ordered first is that
		// they lead, which this test has nothing to do with.
		right, wider := s.one(101), proto.Clone(s.parent).(*clusterpb.Partition)
		wider.Generation, wider.End = max(wider.Generation, right.Generation)+1, right.End
		s.order = &clusterpb.Order{Operator: operatorFor(t, c, 100).Id, Target: wider, Consume: right}
		f(s)
	})
}

func (s *splitCase) leads(id uint64) *clusterpb.PartitionReport {
	return &clusterpb.PartitionReport{Partition: id, Generation: 1, Membership: 1}
}

func (s *splitCase) one(id uint64) *clusterpb.Partition {
	for _, p := range s.table() {
		if p.Id == id {
			return p
		}
	}
	return nil
}

// Reports of merges that cannot be, whether by a mistake or by malice, change nothing in the table;
// a true one that comes afterwards is taken.
func TestHostileReportsOfMerges(t *testing.T) {
	at := func(key string) []byte { return append(keys.KeyspacePrefix(1), key...) }
	type report = clusterpb.PartitionReport
	type partition = clusterpb.Partition
	splitOff := func(r *report, p *partition, change func(*partition)) {
		p = proto.Clone(p).(*partition)
		p.Generation, p.SplitFrom = 3, 100
		change(p)
		r.SplitOff = append(r.SplitOff, p)
	}
	for name, spoil := range map[string]func(r *report, right *partition){
		"no generation": func(r *report, _ *partition) { r.Described.Generation, r.Generation = 1, 1 },
		"a generation too high": func(r *report, _ *partition) {
			r.Described.Generation, r.Generation = math.MaxUint64, math.MaxUint64
		},
		"membership too high": func(r *report, _ *partition) {
			r.Described.Membership, r.Membership = math.MaxUint64, math.MaxUint64
		},
		"a part of the right one": func(r *report, _ *partition) { r.Described.End = at("p") },
		"a part of the next one":  func(r *report, _ *partition) { r.Described.End = at("s") },
		"the next one too":        func(r *report, _ *partition) { r.Described.End = at("t") },
		"all of them": func(r *report, _ *partition) {
			r.Described.End = keys.PrefixEnd(at(""))
		},
		"beyond the keyspace": func(r *report, _ *partition) {
			r.Described.End = keys.PrefixEnd(keys.KeyspacePrefix(2))
		},
		"the same again":      func(r *report, _ *partition) { r.Described.End = at("m") },
		"its start":           func(r *report, _ *partition) { r.Described.Start = at("c") },
		"another hash number": func(r *report, _ *partition) { r.Described.Hash = 7 },
		"another origin":      func(r *report, _ *partition) { r.Described.SplitFrom = 103 },
		"frozen for itself": func(r *report, _ *partition) {
			r.Described.Frozen = &clusterpb.Freeze{Partition: 100}
		},
		"other replicas": func(r *report, _ *partition) { r.Described.Replicas[0].Node = 9 },
		"it is there, and has split": func(r *report, right *partition) {
			r.Described.End = at("p")
			splitOff(r, right, func(p *partition) { p.Start = at("p") })
		},
		"an id that was never given": func(r *report, right *partition) {
			r.Described.End = at("p")
			splitOff(r, right, func(p *partition) { p.Id, p.Start = 900, at("p") })
		},
		"a hole behind what it has": func(r *report, right *partition) {
			r.Described.End = at("p")
			splitOff(r, right, func(p *partition) { p.Id, p.Start = 105, at("q") })
		},
		"what split off consumes": func(r *report, right *partition) {
			r.Described.End = at("p")
			splitOff(r, right, func(p *partition) { p.Id, p.Start, p.End = 105, at("p"), at("t") })
		},
		"another keyspace's has its id": func(r *report, right *partition) {
			r.Described.End = at("p")
			splitOff(r, right, func(p *partition) { p.Id, p.Start = 104, at("p") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inMergeCase(t, func(s *splitCase) {
				before := s.table()
				r := s.merged()
				spoil(r, s.one(101))
				s.say(r)
				time.Sleep(3 * time.Second) // virtual
				s.unchanged(before)
				s.core.await("the true one is taken", func() bool {
					s.say(s.merged())
					time.Sleep(time.Second) // virtual
					now := s.table()
					return len(now) == len(before)-1 && s.one(101) == nil &&
						slices.ContainsFunc(now, func(p *partition) bool {
							return proto.Equal(p, s.order.Target)
						})
				})
				// What is said of it afterwards, for as long as it takes, changes nothing.
				before = s.table()
				late := s.leads(101)
				late.Membership, late.Described = 2, proto.Clone(s.order.Consume).(*partition)
				late.Described.Membership = 2
				s.say(late)
				time.Sleep(3 * time.Second) // virtual
				s.unchanged(before)
			})
		})
	}
}

// merged is the report of the leader of partition 100 after the merge.
func (s *splitCase) merged() *clusterpb.PartitionReport {
	target := proto.Clone(s.order.Target).(*clusterpb.Partition)
	return &clusterpb.PartitionReport{Partition: 100, Generation: target.Generation,
		Membership: target.Membership, Described: target}
}

// While the right one is frozen its report is taken as what it is, and changes nothing else.
func TestAFrozenPartitionIsReported(t *testing.T) {
	inMergeCase(t, func(s *splitCase) {
		d := s.one(101)
		d.Membership = 2
		d.Frozen = &clusterpb.Freeze{Partition: 100, Generation: 1, Membership: 1}
		s.say(&clusterpb.PartitionReport{Partition: 101, Generation: 1, Membership: 2, Described: d})
		s.core.await("it is seen to be frozen", func() bool { return proto.Equal(s.one(101), d) })
		// Both at once: the right one thaws no more.
		r := s.merged()
		d = proto.Clone(d).(*clusterpb.Partition)
		d.Membership, d.Frozen = 3, nil
		s.say(r, &clusterpb.PartitionReport{Partition: 101, Generation: 1, Membership: 3, Described: d})
		s.core.await("the merge is taken", func() bool { return s.one(101) == nil })
	})
}

// Several merges and splits that the core knows nothing of, as after its recovery, are taken when
// they are reported, in one step.
func TestManyReshapesAtOnce(t *testing.T) {
	at := func(key string) []byte { return append(keys.KeyspacePrefix(1), key...) }
	for name, c := range map[string]struct {
		end   string // of partition 100
		child [2]string
		gone  []uint64
	}{
		"two merges and a split":                {"c", [2]string{"c", "t"}, []uint64{101, 102}},
		"a merge and a split at the same key":   {"f", [2]string{"f", "m"}, []uint64{101}},
		"merges and a split at a boundary":      {"m", [2]string{"m", "t"}, []uint64{101, 102}},
		"a merge and a split in the right part": {"h", [2]string{"h", "m"}, []uint64{101}},
		"what split off has merged":             {"c", [2]string{"c", "m"}, []uint64{101}},
	} {
		t.Run(name, func(t *testing.T) {
			inFleet(t, []string{"", "", ""}, func(t *testing.T, core *core, f *fleet) {
				f.create(ranged("x", "f", "m", "t"))
				f.await(time.Minute, "all is well", f.settled)
				id := f.split("x", "d").Child // which is given to nothing else
				cancel(t, f, 100)
				f.awaitWhole(time.Minute, "it is cancelled", f.settled)
				f.mu.Lock()
				p := f.parts[100]
				p.d.End, p.d.Generation = at(c.end), 4
				child := &fleetPartition{d: proto.Clone(p.d).(*clusterpb.Partition), term: 6,
					leader: p.leader, usedIDs: map[uint64]bool{}}
				child.d.Id, child.d.Start, child.d.End = id, at(c.child[0]), at(c.child[1])
				child.d.SplitFrom, child.d.SplitIndex = 100, 20
				f.parts[id] = child
				for _, gone := range c.gone {
					f.merging.ghosts = append(f.merging.ghosts, ghost{f.parts[gone].d, f.parts[gone].leader,
						time.Now().Add(20 * time.Second)})
					delete(f.parts, gone)
				}
				p.split, p.reporting = time.Now(), splitReporting{done: time.Hour}
				f.mu.Unlock()
				f.awaitWhole(4*time.Minute, "the table is as things are", f.settled)
			})
		})
	}
}

// A partition that another one still leads somewhere, and that no merge was ordered for, stays.
func TestNothingIsConsumedOnOneWord(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(ranged("x", "m"))
		f.await(time.Minute, "all is well", f.settled)
		before := partitionsIn(t, f.client, "x")
		f.mu.Lock()
		d := proto.Clone(f.parts[100].d).(*clusterpb.Partition)
		lead := f.parts[100].leader
		f.mu.Unlock()
		d.End, d.Generation = keys.PrefixEnd(keys.KeyspacePrefix(1)), 2
		for range 10 {
			if _, err := f.client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: lead, Server: f.nodes[lead].server, Reports: []*clusterpb.PartitionReport{{
					Partition: 100, Term: 1000, Generation: 2, Membership: d.Membership,
					Described: d}}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second) // virtual
			if now := partitionsIn(t, f.client, "x"); len(now) != 2 ||
				!bytes.Equal(now[0].Partition.End, before[0].Partition.End) {
				t.Fatalf("it was believed: %v", now)
			}
		}
	})
}
