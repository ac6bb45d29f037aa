package table

import (
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

// The table that a node keeps is written and read as in every release.
func TestGolden(t *testing.T) {
	prefix := keys.KeyspacePrefix(7)
	u := &clusterpb.TableUpdate{Cluster: 0xc1, Revision: 9,
		Nodes: []*clusterpb.Node{{Id: 1, Address: "a:1", Version: "v"}},
		Keyspaces: []*clusterpb.Keyspace{{Id: 7, Name: "k", ReplicationFactor: 3,
			State: clusterpb.KeyspaceState_ACTIVE}},
		Partitions: []*clusterpb.Partition{{Id: 3, Keyspace: 7, Start: prefix,
			End: keys.PrefixEnd(prefix), PrefixLength: keys.KeyspacePrefixLength, Generation: 1,
			Membership: 1, NextReplica: 2, Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1,
				Role: clusterpb.ReplicaRole_VOTER}}}}}
	open := func() *engine.Log {
		db, err := engine.OpenLog(engine.Options{FS: vfs.NewMem(), Dir: "log"})
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	golden.Check(t, "record", func(*release.Active) (records []golden.Record) {
		db := open()
		defer db.Close()
		if err := cacheUpdate(db, New().With(u), u, true); err != nil {
			t.Fatal(err)
		}
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{Prefix},
			UpperBound: []byte{Prefix + 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		for ok := it.First(); ok; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				t.Fatal(err)
			}
			name := string(it.Key()[1:2])
			records = append(records, golden.Record{Name: name + "-key", Data: append([]byte(nil),
				it.Key()...)}, golden.Record{Name: name, Data: append([]byte(nil), value...)})
		}
		return records
	}, (func() func(golden.Record) error {
		var c cached
		var key []byte
		return func(r golden.Record) error {
			if len(r.Name) > 1 {
				key = r.Data
				return nil
			}
			return c.add(key, r.Data)
		}
	})())
}
