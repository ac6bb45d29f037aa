package replica

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
)

// A replica that a snapshot is to fill has nothing in the state database, so that the snapshot
// meets no memtable that would have to be flushed first; and it is opened again as it was.
func TestAnEmptyReplicaWritesNothing(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	c := newTestCluster(t, 1, config.Limits{})
	defer c.close()
	p := testPartition(3)
	for range 2 {
		r, err := New(Config{Partition: p, ReplicaID: 9, State: state, Group: c.members[0], Empty: true,
			Node: c.members[0].node})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Descriptor(); d.Id != p.Id || len(d.Replicas) > 0 || d.Membership != 0 {
			t.Errorf("the descriptor of an empty replica: %v", d)
		}
		i, err := state.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if i.First() {
			t.Errorf("%s is in the state", keys.PrettyState(i.Key()))
		}
		if err := i.Close(); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
