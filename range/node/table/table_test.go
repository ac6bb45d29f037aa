package table

import (
	"cmp"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The table does what maps would, and Diff leads from any table to any other.
func TestTableAgainstMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		naive := make(map[uint64]*clusterpb.Partition)
		nodes := make(map[uint64]*clusterpb.Node)
		spaces := make(map[uint32]*clusterpb.Keyspace)
		gone := make(map[uint64]bool)
		table, first := New(), New()
		for range rapid.IntRange(1, 20).Draw(t, "updates") {
			u := &clusterpb.TableUpdate{}
			for range rapid.IntRange(0, 10).Draw(t, "partitions") {
				p := &clusterpb.Partition{Id: rapid.Uint64Range(1, 20).Draw(t, "id"),
					Generation: rapid.Uint64Range(1, 5).Draw(t, "generation")}
				p.Keyspace = uint32(p.Id) % 3
				if !gone[p.Id] {
					u.Partitions = append(u.Partitions, p)
				}
			}
			for range rapid.IntRange(0, 2).Draw(t, "others") {
				u.Nodes = append(u.Nodes, &clusterpb.Node{Id: rapid.Uint64Range(1, 4).Draw(t,
					"node")})
				u.Keyspaces = append(u.Keyspaces,
					&clusterpb.Keyspace{Id: rapid.Uint32Range(1, 4).Draw(t, "keyspace")})
			}
			u.RemovedPartitions = rapid.SliceOfN(rapid.Uint64Range(1, 20), 0, 3).Draw(t, "removed")
			u.RemovedNodes = rapid.SliceOfN(rapid.Uint64Range(1, 4), 0, 1).Draw(t, "removed nodes")
			for _, p := range u.Partitions {
				if old := naive[p.Id]; old == nil || p.Generation >= old.Generation {
					naive[p.Id] = p
				}
			}
			for _, n := range u.Nodes {
				nodes[n.Id] = n
			}
			for _, k := range u.Keyspaces {
				spaces[k.Id] = k
			}
			for _, id := range u.RemovedPartitions {
				delete(naive, id)
				gone[id] = true // ids never come back
			}
			for _, id := range u.RemovedNodes {
				delete(nodes, id)
			}
			table = table.With(u)
			if len(table.Partitions()) != len(naive) || len(table.Nodes()) != len(nodes) ||
				len(table.Keyspaces()) != len(spaces) {
				t.Fatalf("%d partitions, %d nodes, %d keyspaces; want %d, %d, %d",
					len(table.Partitions()), len(table.Nodes()),
					len(table.Keyspaces()), len(naive), len(nodes), len(spaces))
			}
			for id, n := range nodes {
				if table.Node(keys.NodeID(id)) != n {
					t.Fatalf("node %d is not the one expected", id)
				}
			}
			for id, p := range naive {
				if table.Partition(keys.PartitionID(id)) != p {
					t.Fatalf("partition %d is not the one expected", id)
				}
			}
			if rapid.Bool().Draw(t, "keep") {
				first = table
			}
			led := first.With(Diff(first, table))
			if !slices.Equal(led.Partitions(), table.Partitions()) ||
				!sameMembers(table) || !sameMembers(led) || !slices.Equal(led.Nodes(), table.Nodes()) ||
				!slices.Equal(led.Keyspaces(), table.Keyspaces()) {
				t.Fatal("the difference does not lead from the one to the other")
			}
			// A whole table of equal contents changes nothing.
			copied := New().With(proto.Clone(Diff(New(), table)).(*clusterpb.TableUpdate))
			if !sameMembers(first.replacedBy(copied)) {
				t.Fatal("replaced: the partitions by keyspace are others than by id")
			}
			if d := Diff(table, table.replacedBy(copied)); len(
				d.Partitions,
			)+len(
				d.Nodes,
			)+len(
				d.Keyspaces,
			)+len(
				d.RemovedPartitions,
			) != 0 {
				t.Fatalf("replacing a table by an equal one changed %v", d)
			}
		}
	})
}

// sameMembers says whether the partitions by keyspace are those by id.
func sameMembers(t *Table) bool {
	var by []*clusterpb.Partition
	for id := range keys.KeyspaceID(4) {
		for p := range t.PartitionsOf(id) {
			if p.Keyspace != uint32(id) {
				return false
			}
			by = append(by, p)
		}
	}
	slices.SortFunc(by, func(a, b *clusterpb.Partition) int { return cmp.Compare(a.Id, b.Id) })
	return slices.Equal(by, t.Partitions())
}

func FuzzCachedRecord(f *testing.F) {
	prefix := keys.HashPrefix(2, 1)
	p, _ := proto.Marshal(&clusterpb.Partition{Id: 100, Keyspace: 2, Hash: 1, Start: prefix,
		End: keys.PrefixEnd(prefix), PrefixLength: 6})
	f.Add(Key(KindPartition, 100), p, true)
	f.Add(Key(KindNode, 1), []byte{8, 1}, true)
	f.Add(Key(KindRevision, Format), []byte{}, false)
	f.Fuzz(func(t *testing.T, key, record []byte, intact bool) {
		if intact {
			record = Seal(key, record)
		}
		var c cached
		if err := c.add(key, record); err != nil {
			return
		}
		for _, p := range c.table(0).Partitions() {
			if err := keys.ValidatePartition(p); err != nil {
				t.Fatalf("a descriptor that makes no sense got through: %v", err)
			}
		}
	})
}
