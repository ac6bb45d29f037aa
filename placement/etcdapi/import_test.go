package etcdapi

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// What is imported from a snapshot of etcd answers as that etcd does when it is compacted at the
// revision of the snapshot, and what is then exported makes an etcd that does so too.
func TestImportIsEtcds(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	b := &both{t: t, etcd: connect(t, etcd.Endpoints()[0]), revision: 1, answers: map[string]int{}}
	q := &requests{Rand: rand.New(rand.NewPCG(11, 4)), b: b}
	for range 900 {
		request := q.next()
		answer, err := b.etcd.call(t.Context(), request)
		b.follow(request, answer, err)
	}
	path := filepath.Join(t.TempDir(), "snapshot.db")
	if err := saveSnapshot(t.Context(), dial(t, etcd.Endpoints()[0]), path); err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil)
	b.ours = connect(t, s.address)
	importFile(t, b.ours, path)

	compareImported(b)
	path = filepath.Join(t.TempDir(), "snapshot.db")
	if err := saveSnapshot(t.Context(), s.Client, path); err != nil {
		t.Fatal(err)
	}
	b.etcd = restored(t, etcd.Programs, path)
	compareImported(b)
	for range 500 {
		b.ask(q.next())
	}
}

// compareImported compares all that can be read, with etcd compacted at its revision.
func compareImported(b *both) {
	b.t.Helper()
	compaction := &pb.CompactionRequest{Revision: b.revision, Physical: true}
	if answer, err := b.etcd.call(b.t.Context(), compaction); err == nil {
		b.follow(compaction, answer, nil)
	} else if status.Code(err) != codes.OutOfRange { // it is compacted there
		b.t.Fatal(err)
	}
	for revision := b.revision - 1; revision <= b.revision+1; revision++ {
		b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision})
	}
	b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}})
	for _, lease := range testLeases {
		b.ask(&pb.LeaseKeepAliveRequest{ID: lease}) // from now on they run out at the same time
		b.ask(&pb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
	}
	b.ask(&pb.LeaseLeasesRequest{}) // and in the same order
}

// A snapshot of an etcd that was itself restored with --bump-revision comes over. An import that
// raises revisions comes to the same as an etcd that is restored so; and the snapshot of a store with
// such revisions is one that etcdutl restores, also with the revision raised once more.
func TestImportRaisesRevisions(t *testing.T) {
	const raised = 1000
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	b := &both{t: t, etcd: connect(t, etcd.Endpoints()[0]), revision: 1, answers: map[string]int{}}
	q := &requests{Rand: rand.New(rand.NewPCG(12, 4)), b: b}
	etcdDoes := func(request proto.Message) {
		answer, err := b.etcd.call(t.Context(), request)
		b.follow(request, answer, err)
	}
	for range 300 {
		etcdDoes(q.next())
	}
	etcdDoes(&pb.PutRequest{Key: []byte("gone"), Value: []byte("1")})
	etcdDoes(&pb.DeleteRangeRequest{Key: []byte("gone")})
	dir := t.TempDir()
	save := func(from *clientv3.Client, name string) string {
		path := filepath.Join(dir, name)
		if err := saveSnapshot(t.Context(), from, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := save(dial(t, etcd.Endpoints()[0]), "first.db")
	bump := []string{"--bump-revision", fmt.Sprint(raised), "--mark-compacted"}
	for round := range 3 {
		// etcd is restored from the snapshot with its revision raised, ours imports it so.
		address := restoredAt(t, etcd.Programs, path, bump...)
		b.etcd = connect(t, address)
		ours := serve(t, nil)
		b.ours = connect(t, ours.address)
		if at := importFileRaised(t, b.ours, path, raised); at != uint64(b.revision) {
			t.Fatalf("round %d: the snapshot is at revision %d, want %d", round, at, b.revision)
		}
		b.revision += raised
		b.compacted = b.revision
		compareImported(b)
		for _, at := range []int64{2, b.revision - raised, b.revision - 1, b.revision} {
			b.ask(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: at})
		}
		if round == 1 {
			// The next round is of a store that has changed nothing since its import.
			path = save(ours.Client, "of ours, as imported.db")
			continue
		}
		for range 200 {
			b.ask(q.next())
		}
		path = save(dial(t, address), fmt.Sprint("of etcd ", round, ".db"))
	}
}

// importFile imports a file, and sees that nothing else is answered meanwhile.
func importFile(t *testing.T, to *endpoint, path string) {
	t.Helper()
	importFileRaised(t, to, path, 0)
}

// importFileRaised is importFile with the revision of the file, which is returned, raised.
func importFileRaised(t *testing.T, to *endpoint, path string, raised uint64) uint64 {
	t.Helper()
	file, err := etcdfile.Open(t.Context(), path, etcdfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	client := coordpb.NewImportClient(to.connection)
	state, steps := &coordpb.ImportState{}, file.Steps(9)
	steps.Revision += raised
	begin := &coordpb.ImportStep{Id: 9, Step: 1, Revision: steps.Revision, Source: file.Sum[:]}
	if state, err = client.Step(t.Context(), begin); err != nil {
		t.Fatal(err)
	}
	for _, request := range []proto.Message{&pb.RangeRequest{Key: []byte("a")},
		&pb.PutRequest{Key: []byte("a")}, &pb.LeaseLeasesRequest{}, &pb.LeaseGrantRequest{TTL: 10},
		&pb.LeaseTimeToLiveRequest{ID: 1}, &pb.CompactionRequest{Revision: 1}} {
		_, err := to.call(t.Context(), request)
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%T: %v", request, err)
		}
	}
	if _, err := client.Step(t.Context(), &coordpb.ImportStep{Id: 8, Step: 1,
		Revision: 5}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("another import: %v", err)
	}
	for state.Phase == coordpb.ImportState_UNDER_WAY {
		step, err := steps.Next(state)
		if err == nil {
			state, err = client.Step(t.Context(), step)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if state.Phase != coordpb.ImportState_DONE || raised == 0 && state.Keys != uint64(file.Len()) ||
		state.Leases != uint64(len(file.Leases)) || steps.WithoutLease > 0 {
		t.Fatal("the import has not ended", state, steps.WithoutLease)
	}
	return file.Revision
}
