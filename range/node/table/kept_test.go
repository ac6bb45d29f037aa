package table

import (
	"log/slog"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A table is kept before it is shown. A replica that was created because of one that a crash has
// taken would be found again beside a table that does not have it, and be removed for good.
func TestTableIsKeptBeforeItIsShown(t *testing.T) {
	log, err := engine.OpenLog(engine.Options{FS: vfs.NewMem(), Dir: "log"})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f := &Follower{Cluster: 1, Log: log, Table: NewCurrent(New()), Listener: deaf{},
		Logger:   slog.New(slog.DiscardHandler),
		Revision: prometheus.NewGauge(prometheus.GaugeOpts{Name: "revision"})}
	done, early := make(chan struct{}), make(chan uint64, 1)
	go func() {
		defer close(early)
		for {
			select {
			case <-done:
				return
			default:
			}
			shown := f.Table.Load().Revision
			if kept := keptRevision(t, log); kept < shown {
				early <- shown
				return
			}
		}
	}()
	for revision := uint64(1); revision <= 10; revision++ {
		u := &clusterpb.TableUpdate{Cluster: f.Cluster, Revision: revision, Complete: true,
			Reset_: revision == 1,
			Nodes: []*clusterpb.Node{{Id: 1,
				Address: "a"}}, Keyspaces: []*clusterpb.Keyspace{{Id: uint32(revision), Name: "k"}}}
		for i := range uint32(1000) {
			prefix := keys.HashPrefix(keys.KeyspaceID(revision), uint16(i))
			u.Partitions = append(u.Partitions,
				&clusterpb.Partition{Id: revision<<32 | uint64(i), Keyspace: uint32(revision),
					Generation: 1, Membership: 1,
					PrefixLength: keys.HashPrefixLength, Hash: i, Start: prefix,
					End: keys.PrefixEnd(prefix),
					Replicas: []*clusterpb.Replica{{Node: 2, Replica: 1,
						Role: clusterpb.ReplicaRole_VOTER}}})
		}
		if err := f.Take(u); err != nil {
			t.Fatal(err)
		}
		if got := f.Table.Load(); got.Revision != revision ||
			len(got.Partitions()) != 1000*int(revision) {
			t.Fatalf("revision %d, %d partitions", got.Revision, len(got.Partitions()))
		}
	}
	close(done)
	if revision, ok := <-early; ok {
		t.Errorf("revision %d was shown and not kept", revision)
	}
}

// deaf is a Listener that does nothing.
type deaf struct{}

func (deaf) KeyspaceChanged(*clusterpb.Keyspace)      {}
func (deaf) PartitionsChanged(*clusterpb.TableUpdate) {}
func (deaf) Present()                                 {}

// keptRevision is of which revision the table on disk is.
func keptRevision(t *testing.T, log *engine.Log) uint64 {
	key := Key(KindRevision, Format)
	record, closer, err := log.Get(key)
	if err == pebble.ErrNotFound {
		return 0
	}
	if err != nil {
		t.Error(err)
		return 0
	}
	defer closer.Close()
	header := &clusterpb.TableUpdate{}
	body, err := Unseal(key, record)
	if err == nil {
		err = proto.Unmarshal(body, header)
	}
	if err != nil {
		t.Error(err)
	}
	return header.Revision
}
