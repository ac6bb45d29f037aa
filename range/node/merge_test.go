package node

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// mergeScan is a request to read all of some partitions as of a node's clock. The partitions come
// as they are given.
func (c *cluster) mergeScan(node uint64, partitions ...*clusterpb.Partition) *kvpb.Request {
	sequence++
	m := &kvpb.MergeScanRequest{At: wire.ToTimestamp(c.nodes[node].config.Clock.Now())}
	for _, p := range partitions {
		_, term := c.believedLeader(p.Id)
		m.Partitions = append(m.Partitions,
			&kvpb.PartitionRoute{Partition: p.Id, Generation: p.Generation, Term: term})
	}
	return &kvpb.Request{Id: sequence, Sequence: sequence,
		Command: &kvpb.Request_MergeScan{MergeScan: m}}
}

// ledBy are the partitions that a node leads, by id.
func (c *cluster) ledBy(node uint64,
	partitions []*clusterpb.Partition) (led []*clusterpb.Partition) {
	for _, p := range partitions {
		if leader, _ := c.believedLeader(p.Id); leader == node {
			led = append(led, p)
		}
	}
	slices.SortFunc(led, func(a, b *clusterpb.Partition) int { return int(a.Id) - int(b.Id) })
	return led
}

// fillHash puts n keys into the partitions of a hash keyspace, each where it belongs.
func (c *cluster) fillHash(partitions []*clusterpb.Partition, n int) (where map[string]uint64) {
	where = make(map[string]uint64)
	for i := range n {
		key := fmt.Sprintf("key%03d", i)
		p := partitions[keys.HashPartition([]byte(key), uint32(len(partitions)))]
		c.mustPut(p, key, "value of "+key)
		where[key] = p.Id
	}
	return where
}

// A node reads all partitions that it leads as one, page by page, in both directions, also when
// their groups sleep.
func TestMergeScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		where := c.fillHash(partitions, 100)
		for _, asleep := range []bool{false, true} {
			if asleep {
				time.Sleep(time.Minute)
			}
			for _, reverse := range []bool{false, true} {
				led := c.ledBy(1, partitions)
				if len(led) < 2 {
					t.Fatalf("node 1 leads %d partitions", len(led))
				}
				var want, got []string
				for key, id := range where {
					if slices.ContainsFunc(led,
						func(p *clusterpb.Partition) bool { return p.Id == id }) {
						want = append(want, key)
					}
				}
				slices.Sort(want)
				if reverse {
					slices.Reverse(want)
				}
				q := c.mergeScan(1, led...)
				m := q.GetMergeScan()
				m.Reverse, m.MaxRows = reverse, 7
				for more := true; more; {
					answer := c.ask(1, q)[q.Id]
					page := answer.GetMergeScan()
					if page == nil || len(page.Refused) > 0 {
						t.Fatalf("answered %v", answer)
					}
					if wire.FromTimestamp(answer.Now).Less(wire.FromTimestamp(m.At)) {
						t.Fatalf("the node's clock %v is below the timestamp %v", answer.Now, m.At)
					}
					rows, err := wire.DecodeRows(page.Rows)
					if err != nil {
						t.Fatal(err)
					}
					for _, row := range rows {
						if string(row.Value) != "value of "+string(row.Key) {
							t.Fatalf("row %+v", row)
						}
						got = append(got, string(row.Key))
					}
					if more = page.More; reverse {
						m.End = page.Resume
					} else {
						m.Start = page.Resume
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("asleep %t, reverse %t: read %q, want %q", asleep, reverse, got, want)
				}
			}
		}
	})
}

// Nothing is written at or below the timestamp at which a partition was read together with others.
func TestMergeScanHoldsLaterWritesAbove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 6)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		led := c.ledBy(1, partitions)
		q := c.mergeScan(1, led...)
		// As far ahead as a reader with a fast clock may be.
		at := wire.FromTimestamp(q.GetMergeScan().At).Add(200 * time.Millisecond)
		q.GetMergeScan().At = wire.ToTimestamp(at)
		if m := c.ask(1, q)[q.Id].GetMergeScan(); m == nil || len(m.Refused) > 0 {
			t.Fatalf("answered %v", m)
		}
		for _, p := range led {
			_, term := c.believedLeader(p.Id)
			write := put(p, term, "k", "v")
			if version := wire.FromTimestamp(c.ask(1,
				write)[write.Id].GetPut().GetVersion()); version.LessEq(at) {
				t.Errorf("partition %d was read at %s, and written at %s", p.Id, at, version)
			}
		}
	})
}

// Partitions that cannot be read are left out, with the reason, and the others are read.
func TestMergeScanRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		where := c.fillHash(partitions, 60)
		q := c.mergeScan(1, slices.SortedFunc(slices.Values(partitions),
			func(a, b *clusterpb.Partition) int { return int(a.Id) - int(b.Id) })...)
		q.GetMergeScan().Partitions = append(q.GetMergeScan().Partitions,
			&kvpb.PartitionRoute{Partition: 1 << 40, Generation: 1, Term: 1})
		led := c.ledBy(1, partitions)
		stale := led[0].Id
		for _, route := range q.GetMergeScan().Partitions {
			if route.Partition == stale {
				route.Generation++
			}
		}
		m := c.ask(1, q)[q.Id].GetMergeScan()
		if m == nil {
			t.Fatal("the whole was refused")
		}
		read := make(map[uint64]bool)
		for _, p := range led[1:] {
			read[p.Id] = true
		}
		for _, r := range m.Refused {
			var held bool
			if i := slices.IndexFunc(partitions,
				func(p *clusterpb.Partition) bool { return p.Id == r.Partition }); i >= 0 {
				held = slices.ContainsFunc(partitions[i].Replicas,
					func(x *clusterpb.Replica) bool { return x.Node == 1 })
			}
			want := kvpb.ErrorCode_PARTITION_NOT_FOUND
			switch {
			case r.Partition == stale:
				want = kvpb.ErrorCode_STALE_EPOCH
			case held:
				want = kvpb.ErrorCode_NOT_LEADER
			}
			if read[r.Partition] || r.Error.GetCode() != want {
				t.Errorf("partition %d is refused with %v, want %s", r.Partition, r.Error, want)
			}
		}
		if len(m.Refused)+len(read) != len(partitions)+1 {
			t.Errorf("%d refused, %d led, of %d", len(m.Refused), len(read), len(partitions)+1)
		}
		rows, err := wire.DecodeRows(m.Rows)
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, id := range where {
			if read[id] {
				want++
			}
		}
		for _, row := range rows {
			if !read[where[string(row.Key)]] {
				t.Errorf("a row of a partition that was refused: %q", row.Key)
			}
		}
		if len(rows) != want {
			t.Errorf("%d rows, want %d", len(rows), want)
		}
	})
}

// A request without a timestamp reads nothing: it is answered with a moment at or above all that is
// there, also when the groups sleep. A partition that the node does not lead is named, and the span
// may be larger than a partition.
func TestMomentOfPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		c.fillHash(partitions, 100)
		for _, asleep := range []bool{false, true} {
			if asleep {
				time.Sleep(time.Minute)
			}
			led := c.ledBy(1, partitions)
			q := c.mergeScan(1, partitions...)
			q.GetMergeScan().At = nil
			// The newest version of each partition, by a read of its own.
			var newest hlc.Timestamp
			for _, p := range led {
				sequence++
				_, term := c.believedLeader(p.Id)
				one := &kvpb.Request{Id: sequence, Sequence: sequence, Partition: p.Id,
					Generation: p.Generation, Term: term,
					Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}}
				rows, err := wire.DecodeRows(c.ask(1, one)[one.Id].GetScan().GetRows())
				if err != nil || len(rows) == 0 {
					t.Fatalf("%d rows, %v", len(rows), err)
				}
				for _, row := range rows {
					newest = hlc.Max(newest, row.Version)
				}
			}
			got := c.ask(1, q)[q.Id].GetMergeScan()
			if at := wire.FromTimestamp(got.GetAt()); at.Less(newest) || len(got.GetRows()) != 0 ||
				got.GetMore() {
				t.Errorf("the moment %s, with the newest version %s, %d bytes of rows", at, newest,
					len(got.GetRows()))
			}
			if n := len(got.GetRefused()); n != len(partitions)-len(led) {
				t.Errorf("%d of %d partitions refused, of which %d are led", n, len(partitions),
					len(led))
			}
		}
	})
}

// Whatever is asked, it is answered once, without rows unless it makes sense.
func TestHostileMergeScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions, other := c.createHash(2, 6), c.createHash(3, 2)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(append(partitions, other...)) })
		c.fillHash(partitions, 20)
		led := c.ledBy(1, partitions)
		many := make([]*kvpb.PartitionRoute, 257)
		for i := range many {
			many[i] = &kvpb.PartitionRoute{Partition: uint64(i + 1)}
		}
		route := func(p *clusterpb.Partition) *kvpb.PartitionRoute {
			_, term := c.believedLeader(p.Id)
			return &kvpb.PartitionRoute{Partition: p.Id, Generation: p.Generation, Term: term}
		}
		foreign := append([]*kvpb.PartitionRoute{route(led[0])}, route(other[0]))
		slices.SortFunc(foreign, func(a,
			b *kvpb.PartitionRoute) int {
			return int(a.Partition) - int(b.Partition)
		})
		for name, change := range map[string]func(m *kvpb.MergeScanRequest){
			"no partitions": func(m *kvpb.MergeScanRequest) { m.Partitions = nil },
			"too many":      func(m *kvpb.MergeScanRequest) { m.Partitions = many },
			"one twice": func(m *kvpb.MergeScanRequest) {
				m.Partitions = append(m.Partitions[:1], m.Partitions[0])
			},
			"descending":    func(m *kvpb.MergeScanRequest) { slices.Reverse(m.Partitions) },
			"two keyspaces": func(m *kvpb.MergeScanRequest) { m.Partitions = foreign },
			"partitions of nil": func(m *kvpb.MergeScanRequest) {
				m.Partitions = []*kvpb.PartitionRoute{nil, nil}
			},
		} {
			q := c.mergeScan(1, led...)
			change(q.GetMergeScan())
			if code := c.ask(1, q)[q.Id].GetError().GetCode(); code != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("%s: %s", name, code)
			}
		}
		q := &kvpb.Request{Id: 1, Command: &kvpb.Request_MergeScan{}}
		if code := c.ask(1, q)[1].GetError().GetCode(); code != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("without contents: %s", code)
		}
		rapid.Check(undated{t}, func(rt *rapid.T) { c.hostile(rt, partitions, other) })
	})
}

// undated hides the test's deadline, which is real time and has no place in a bubble.
type undated struct{ testing.TB }

// hostile asks something random.
func (c *cluster) hostile(t *rapid.T, partitions, other []*clusterpb.Partition) {
	all := append(slices.Clone(partitions), other...)
	key := rapid.SliceOfN(rapid.SampledFrom([]byte("key019\x00\xff")), 0, 7)
	wild := rapid.SampledFrom([]uint64{0, 1, 2, 1 << 40, 1<<64 - 1})
	m := &kvpb.MergeScanRequest{
		Start: key.Draw(t, "start"), End: key.Draw(t, "end"),
		Reverse: rapid.Bool().Draw(t, "reverse"), KeysOnly: rapid.Bool().Draw(t, "keys only"),
		MaxRows: uint32(wild.Draw(t, "rows")), MaxBytes: uint32(wild.Draw(t, "bytes")),
	}
	if rapid.IntRange(0, 4).Draw(t, "long") == 0 {
		m.Start = bytes.Repeat([]byte{'k'}, keys.MaxKeySize+rapid.IntRange(-1, 3).Draw(t, "longer"))
	}
	now := c.nodes[1].config.Clock.Now()
	stamp := func(name string) *kvpb.Timestamp {
		switch rapid.IntRange(0, 4).Draw(t, name) {
		case 0:
			return nil
		case 1:
			return &kvpb.Timestamp{Wall: wild.Draw(t, name), Logical: uint32(wild.Draw(t, name))}
		}
		return wire.ToTimestamp(hlc.Timestamp{Wall: now.Wall + rapid.Int64Range(-1e9, 1e8).Draw(t,
			name)})
	}
	m.At, m.UncertainUntil = stamp("at"), stamp("until")
	for range rapid.IntRange(0, 6).Draw(t, "partitions") {
		p := rapid.SampledFrom(all).Draw(t, "partition")
		_, term := c.believedLeader(p.Id)
		r := &kvpb.PartitionRoute{Partition: p.Id, Generation: p.Generation, Term: term}
		switch rapid.IntRange(0, 6).Draw(t, "wrong") {
		case 0:
			r.Partition = wild.Draw(t, "id")
		case 1:
			r.Generation = wild.Draw(t, "generation")
		case 2:
			r.Term = wild.Draw(t, "term")
		}
		m.Partitions = append(m.Partitions, r)
	}
	if rapid.Bool().Draw(t, "sorted") {
		slices.SortFunc(m.Partitions, func(a, b *kvpb.PartitionRoute) int {
			switch {
			case a.Partition < b.Partition:
				return -1
			case a.Partition > b.Partition:
				return 1
			}
			return 0
		})
	}
	sequence++
	q := &kvpb.Request{Id: sequence, Partition: wild.Draw(t, "request's partition"),
		Session:       stamp("session"),
		TimeoutMicros: wild.Draw(t, "timeout"), Command: &kvpb.Request_MergeScan{MergeScan: m}}
	answer := c.ask(1, q)[q.Id]
	if (answer.Error == nil) == (answer.GetMergeScan() == nil) {
		t.Fatalf("%v is answered %v", q, answer)
	}
	rows, err := wire.DecodeRows(answer.GetMergeScan().GetRows())
	if err != nil {
		t.Fatal(err)
	}
	span := keys.Span{Start: m.Start, End: m.End}
	for i, row := range rows {
		if !span.Contains(row.Key) {
			t.Fatalf("%v gives %q", q, row.Key)
		}
		if i > 0 && (bytes.Compare(rows[i-1].Key, row.Key) < 0) == m.Reverse {
			t.Fatalf("%v gives %q before %q", q, rows[i-1].Key, row.Key)
		}
	}
}
