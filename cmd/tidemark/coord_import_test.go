package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// emptyCluster is a cluster of its own, which ends with the test.
func emptyCluster(t *testing.T) shared {
	t.Helper()
	own, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{
		Dir: t.TempDir(), Nodes: 1, Cores: 1, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := own.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return shared{t, map[string]string{endpointsEnv: own.Endpoints()[0]}}
}

// After a restore from a snapshot, clients that have seen later revisions are told that these were
// compacted, and new holders of a lock pass the fence that has seen later holders.
func TestCoordImportRaisesRevisions(t *testing.T) {
	from, to := service(t), emptyCluster(t)
	ctx := t.Context()
	saved := filepath.Join(t.TempDir(), "etcd.db")
	from.ok("coord", "put", "raised/a", "1")
	from.ok("coord", "export", saved)

	data, err := kv.Open(ctx, []string{to.environment[endpointsEnv]})
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	ks, err := data.CreateKeyspace(ctx, "fenced", kv.Hash(1), kv.Replicas(1))
	if err != nil {
		t.Fatal(err)
	}
	fence := coord.Fence{Keyspace: ks, Name: "raised"}
	// hold takes the lock of a service for a moment, passes the fence, and returns the token and the
	// client.
	hold := func(of shared) (coord.Token, *coord.Client) {
		t.Helper()
		client, err := coord.Connect(ctx, strings.Split(of.environment[endpointsEnv], ","))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		session, err := client.NewSession(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close(ctx)
		lock, err := client.Mutex("raised").Lock(ctx, session)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := data.Update(ctx, func(tx *kv.Txn) error {
			return fence.Check(ctx, tx, lock.Token())
		}); err != nil {
			t.Errorf("a holder with token %d: %v", lock.Token(), err)
		}
		return lock.Token(), client
	}
	for i := range 10 {
		from.ok("coord", "put", "raised/a", fmt.Sprint("later ", i))
	}
	before, _ := hold(from)

	for _, tooHigh := range []uint64{math.MaxInt64 / 2, math.MaxInt64 - 1000, math.MaxUint64} {
		to.fails(exit.Usage, "at the highest", "coord", "import", saved, "--bump-revision",
			fmt.Sprint(tooHigh))
	}
	to.ok("coord", "import", saved)
	after, client := hold(to)
	if after < before+etcdfile.LeastRaise/2 {
		t.Errorf("token %d after the restore, %d before", after, before)
	}
	watch := <-client.Etcd().Watch(ctx, "raised/", clientv3.WithPrefix(),
		clientv3.WithRev(int64(before)+1))
	if !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from revision %d on: %v", before+1, watch.Err())
	}
}

// A second service that is made of the same snapshot goes on above all revisions of the first.
func TestDefaultRevisionRises(t *testing.T) {
	at := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	first := etcdfile.Raised(10, at)
	const second, writes = 1, 100_000 // more than a service makes in a second
	if again := etcdfile.Raised(10, at.Add(second*time.Second)); again <= first+writes {
		t.Errorf("%d, and a second later %d", first, again)
	}
	if again := etcdfile.Raised(first+writes, at.Add(time.Second)); again <= first+writes+writes {
		t.Errorf("a snapshot of the second service: %d, after %d", again, first)
	}
	if first >= 1<<53 {
		t.Errorf("%d is no integer in JSON", first)
	}
	for _, wrong := range []time.Time{time.Unix(-1, 0), time.Unix(math.MaxInt64/1_000_000, 0)} {
		if got := etcdfile.Raised(10, wrong); got != 10+etcdfile.LeastRaise {
			t.Errorf("with a clock at %v: %d", wrong, got)
		}
	}
}

// An import goes on at the revision at which it began, and at no other.
func TestCoordImportGoesOnWithItsRevision(t *testing.T) {
	from, to := service(t), emptyCluster(t)
	saved := filepath.Join(t.TempDir(), "etcd.db")
	from.ok("coord", "put", "raised/a", "1")
	from.ok("coord", "export", saved)
	file, err := etcdfile.Open(t.Context(), saved, etcdfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	client, err := coord.Connect(t.Context(), []string{to.environment[endpointsEnv]})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := coordpb.NewImportClient(client.Etcd().ActiveConnection()).Step(t.Context(),
		&coordpb.ImportStep{Id: 7, Step: 1, Revision: file.Revision + 77,
			Source: file.Sum[:]}); err != nil {
		t.Fatal(err)
	}
	to.fails(exit.Conflict, "--bump-revision 77", "coord", "import", saved, "--bump-revision", "5")
	to.ok("coord", "import", saved)
	state, err := client.Etcd().Get(t.Context(), "raised/a")
	if err != nil || state.Header.Revision != int64(file.Revision)+77 {
		t.Errorf("at revision %v, want %d: %v", state.Header, file.Revision+77, err)
	}
}

// What an etcd has comes over, with its leases and revisions, and goes back.
func TestCoordImportAndExport(t *testing.T) {
	from := service(t)
	from.ok("coord", "del", "", "--prefix")
	lease, _, _ := strings.Cut(from.ok("lease", "grant", "1h", "-o", "raw"), "\t")
	for range 5 {
		from.ok("coord", "put", "other", "")
	}
	from.ok("coord", "put", "im/a", "1")
	from.ok("coord", "put", "im/a", "2")
	from.ok("coord", "put", "im/b", "3", "--lease", lease)
	dir := t.TempDir()
	saved := filepath.Join(dir, "etcd.db")
	from.ok("coord", "export", saved)
	from.fails(exit.Failed, "is there already", "coord", "export", saved)

	to := emptyCluster(t)
	to.ok("coord", "put", "x", "1")
	to.fails(exit.Usage, "only an empty store", "coord", "import", saved)
	to.ok("coord", "del", "x")
	to.fails(exit.NotFound, "no import", "coord", "import", "--abandon")
	to.fails(exit.Usage, "--abandon", "coord", "import")
	content, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.db")
	if err := os.WriteFile(cut, content[:len(content)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	to.fails(exit.Failed, "--skip-hash-check", "coord", "import", cut)

	to.ok("coord", "import", saved, "-o", "json")
	to.fails(exit.Usage, "only an empty store", "coord", "import", saved)
	want := from.ok("coord", "get", "im/", "--prefix", "-o", "json")
	to.want(want, "coord", "get", "im/", "--prefix", "-o", "json")
	again := filepath.Join(dir, "again.db")
	to.ok("coord", "export", again)
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	member := filepath.Join(dir, "m1")
	if out, err := exec.CommandContext(t.Context(), programs.Etcdutl, "snapshot", "restore", again,
		"--data-dir", member, "--name", "m1", "--initial-cluster", "m1=http://127.0.0.1:1",
		"--initial-advertise-peer-urls", "http://127.0.0.1:1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	etcd := reference.Test(t, reference.Options{Dir: dir, Args: []string{"--unsafe-no-fsync"}})
	back := shared{t, map[string]string{endpointsEnv: etcd.Endpoints()[0]}}
	back.want(want, "coord", "get", "im/", "--prefix", "-o", "json")
}
