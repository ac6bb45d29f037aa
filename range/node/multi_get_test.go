package node

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/read"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// multiGet is a request to read some keys of each of some partitions as of a node's clock.
func (c *cluster) multiGet(node uint64, partitions []*clusterpb.Partition,
	of func(id uint64) [][]byte) *kvpb.Request {
	sequence++
	m := &kvpb.MultiGetRequest{At: wire.ToTimestamp(c.nodes[node].config.Clock.Now())}
	for _, p := range partitions {
		_, term := c.believedLeader(p.Id)
		m.Partitions = append(m.Partitions,
			&kvpb.PartitionKeys{Partition: p.Id, Generation: p.Generation, Term: term,
				Keys: of(p.Id)})
	}
	return &kvpb.Request{Id: sequence, Sequence: sequence,
		Command: &kvpb.Request_MultiGet{MultiGet: m}}
}

// keysOf are the keys of a partition, and one that is not there.
func keysOf(where map[string]uint64) func(id uint64) [][]byte {
	return func(id uint64) (out [][]byte) {
		for key, at := range where {
			if at == id {
				out = append(out, []byte(key))
			}
		}
		slices.SortFunc(out, slices.Compare[[]byte])
		return append(out, []byte("none"))
	}
}

// A node reads keys of all partitions that it leads, also when their groups have slept; those that
// it does not lead refuse. Nothing is written at or below the timestamp afterwards. In the same
// message other requests are answered as well.
func TestMultiGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		where := c.fillHash(partitions, 100)
		all := slices.SortedFunc(slices.Values(partitions),
			func(a, b *clusterpb.Partition) int { return int(a.Id) - int(b.Id) })
		led := c.ledBy(1, partitions)
		if len(led) < 2 {
			t.Fatalf("node 1 leads %d partitions", len(led))
		}
		for _, asleep := range []bool{false, true} {
			if asleep {
				time.Sleep(time.Minute)
			} else {
				// The lease of a leader that has just come, or whose group has slept, does not
				// stand.
				c.await("node 1 has its leases", 10*time.Second, func() bool {
					return !slices.ContainsFunc(led, func(p *clusterpb.Partition) bool {
						node, _ := c.leaderOf(p.Id)
						return node != 1
					})
				})
			}
			q := c.multiGet(1, all, keysOf(where))
			// As far ahead as a reader with a fast clock may be. A lease that is over before the
			// clock is there does not count.
			const ahead = 200 * time.Millisecond
			at := wire.FromTimestamp(q.GetMultiGet().At).Add(ahead)
			lasts := make(map[uint64]bool)
			for _, p := range led {
				lasts[p.Id] = c.leaseLasts(1, p.Id, ahead)
			}
			q.GetMultiGet().At = wire.ToTimestamp(at)
			_, term := c.believedLeader(led[0].Id)
			own := keysOf(where)(led[0].Id)
			lone := get(led[0], term, string(own[0]))
			answers := c.ask(1, lone, q)
			if string(answers[lone.Id].GetGet().GetValue()) != "value of "+string(own[0]) {
				t.Errorf("the other request is answered %v", answers[lone.Id])
			}
			got := answers[q.Id].GetMultiGet()
			if got == nil || wire.FromTimestamp(answers[q.Id].Now).Less(at) {
				t.Fatalf("answered %v", answers[q.Id])
			}
			rows, err := wire.DecodeRows(got.Rows)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				leads := slices.Contains(led, p)
				for _, r := range got.Refused {
					if r.Partition == p.Id && (leads ||
						r.Error.GetCode() != kvpb.ErrorCode_NOT_LEADER) {
						t.Errorf("partition %d, which node 1 leads: %t, refused with %v", p.Id,
							leads, r.Error)
					}
				}
				if slices.Contains(got.Alone, p.Id) && (!leads || lasts[p.Id]) {
					t.Errorf("partition %d is to be asked by itself", p.Id)
				}
				if !leads || slices.Contains(got.Alone, p.Id) {
					continue
				}
				keys := keysOf(where)(p.Id)
				for _, key := range keys[:len(keys)-1] {
					if len(rows) == 0 || string(rows[0].Key) != string(key) ||
						string(rows[0].Value) != "value of "+string(key) {
						t.Fatalf("asleep %t: %v in the place of %q", asleep, rows, key)
					}
					rows = rows[1:]
				}
				_, term := c.believedLeader(p.Id)
				write := put(p, term, string(keys[0]), "value of "+string(keys[0]))
				if version := wire.FromTimestamp(c.ask(1,
					write)[write.Id].GetPut().GetVersion()); version.LessEq(at) {
					t.Errorf("partition %d was read at %s, and written at %s", p.Id, at, version)
				}
			}
			if len(rows) > 0 || len(got.Refused) != len(all)-len(led) {
				t.Errorf("asleep %t: %d rows too many, %d of %d refused", asleep, len(rows),
					len(got.Refused), len(all)-len(led))
			}
		}
	})
}

// Whatever is asked, it is answered once, and with nothing that was not asked for.
func TestHostileMultiGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 6)
		c.await("every partition is led where it is preferred", 5*time.Second,
			func() bool { return c.asPreferred(partitions) })
		where := c.fillHash(partitions, 20)
		led := c.ledBy(1, partitions)
		for name, change := range map[string]func(m *kvpb.MultiGetRequest){
			"no partitions": func(m *kvpb.MultiGetRequest) { m.Partitions = nil },
			"too many": func(m *kvpb.MultiGetRequest) {
				m.Partitions = make([]*kvpb.PartitionKeys, read.MaxMerged+1)
			},
			"too many keys": func(m *kvpb.MultiGetRequest) {
				m.Partitions[0].Keys = make([][]byte, read.MaxMultiGetKeys+1)
			},
			"no timestamp": func(m *kvpb.MultiGetRequest) { m.At = nil },
		} {
			q := c.multiGet(1, led, keysOf(where))
			change(q.GetMultiGet())
			if code := c.ask(1, q)[q.Id].GetError().GetCode(); code != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("%s: %s", name, code)
			}
		}
		q := &kvpb.Request{Id: 1, Command: &kvpb.Request_MultiGet{}}
		if code := c.ask(1, q)[1].GetError().GetCode(); code != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("without contents: %s", code)
		}
		wild := rapid.SampledFrom([]uint64{0, 1, 2, 1 << 40, 1<<64 - 1})
		rapid.Check(undated{t}, func(t *rapid.T) {
			now := c.nodes[1].config.Clock.Now()
			stamp := func(name string) *kvpb.Timestamp {
				switch rapid.IntRange(0, 4).Draw(t, name) {
				case 0:
					return nil
				case 1:
					return &kvpb.Timestamp{Wall: wild.Draw(t, name),
						Logical: uint32(wild.Draw(t, name))}
				}
				return wire.ToTimestamp(hlc.Timestamp{Wall: now.Wall + rapid.Int64Range(-1e9,
					1e8).Draw(t, name)})
			}
			m := &kvpb.MultiGetRequest{At: stamp("at")}
			if rapid.Bool().Draw(t, "context") {
				m.Context = &kvpb.ReadContext{UncertainUntil: stamp("until"),
					Observed: stamp("observed"), Movable: rapid.Bool().Draw(t, "movable"),
					Transaction: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "transaction")}
			}
			asked := make(map[string]bool)
			for range rapid.IntRange(0, 6).Draw(t, "partitions") {
				p := rapid.SampledFrom(partitions).Draw(t, "partition")
				_, term := c.believedLeader(p.Id)
				part := &kvpb.PartitionKeys{Partition: p.Id, Generation: p.Generation, Term: term}
				switch rapid.IntRange(0, 8).Draw(t, "wrong") {
				case 0:
					part.Partition = wild.Draw(t, "id")
				case 1:
					part.Generation = wild.Draw(t, "generation")
				case 2:
					part.Term = wild.Draw(t, "term")
				case 3:
					part.Keys = [][]byte{nil}
				case 4:
					part = nil
				}
				if part != nil {
					for range rapid.IntRange(0, 3).Draw(t, "keys") {
						key := fmt.Sprintf("key%03d", rapid.IntRange(0, 25).Draw(t, "key"))
						part.Keys = append(part.Keys, []byte(key))
						asked[key] = true
					}
				}
				m.Partitions = append(m.Partitions, part)
			}
			sequence++
			q := &kvpb.Request{Id: sequence, Session: stamp("session"),
				TimeoutMicros: wild.Draw(t,
					"timeout"), Command: &kvpb.Request_MultiGet{MultiGet: m}}
			answer := c.ask(1, q)[q.Id]
			if (answer.Error == nil) == (answer.GetMultiGet() == nil) {
				t.Fatalf("%v is answered %v", q, answer)
			}
			rows, err := wire.DecodeRows(answer.GetMultiGet().GetRows())
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				if !asked[string(row.Key)] || string(row.Value) != "value of "+string(row.Key) {
					t.Fatalf("%v gives %q", q, row.Key)
				}
			}
		})
	})
}
