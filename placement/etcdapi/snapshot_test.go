package etcdapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

// An etcd that is restored from a snapshot answers as the server that it was taken from: all of the
// history, the leases and their keys, and what is written from then on.
func TestSnapshotIsEtcds(t *testing.T) {
	temporary := t.TempDir()
	s := serve(t, func(c *Config) { c.TemporaryDirectory = temporary })
	ours := connect(t, s.address)
	// The history is made by the requests that are compared with etcd elsewhere.
	b := &both{t: t, ours: ours, revision: 1, answers: map[string]int{}}
	q := &requests{Rand: rand.New(rand.NewPCG(7, 7)), b: b}
	ask := func(n int) {
		for range n {
			request := q.next()
			answer, err := ours.call(t.Context(), request)
			b.follow(request, answer, err)
		}
	}
	ask(800)
	// A compaction that leaves versions from below it, several of one revision among them.
	for i := range 40 {
		request := &pb.TxnRequest{Success: []*pb.RequestOp{putOp(testKeys[i%11], fmt.Sprint(i)),
			putOp(testKeys[(i+1)%11], ""), putOp(fmt.Sprint("once", i), "")}}
		answer, err := ours.call(t.Context(), request)
		b.follow(request, answer, err)
	}
	compaction := &pb.CompactionRequest{Revision: b.revision - 15}
	answer, err := ours.call(t.Context(), compaction)
	if err != nil {
		t.Fatal(err)
	}
	b.follow(compaction, answer, nil)
	ask(100)

	dir := t.TempDir()
	path := filepath.Join(dir, "snapshot.db")
	if err := saveSnapshot(t.Context(), s.Client, path); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	var status struct{ Revision int64 }
	out := run(t, programs.Etcdutl, "snapshot", "status", path, "--write-out", "json")
	if err := json.Unmarshal(out, &status); err != nil || status.Revision != b.revision {
		t.Errorf("etcdutl says %s, want revision %d, %v", out, b.revision, err)
	}
	b.etcd = restored(t, programs, path)

	for revision := b.compacted - 1; revision <= b.revision+1; revision++ {
		b.ask(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision})
	}
	for _, lease := range testLeases {
		b.ask(&pb.LeaseKeepAliveRequest{ID: lease}) // from now on they run out at the same time
		b.ask(&pb.LeaseTimeToLiveRequest{ID: lease, Keys: true})
	}
	b.ask(&pb.LeaseLeasesRequest{}) // and in the same order
	for range 500 {
		b.ask(q.next())
	}
}

// Clients that do not read their snapshots keep no other from having one, and lose their streams
// and the files; more of them than may be are refused at once.
func TestSnapshotThatIsNotRead(t *testing.T) {
	temporary := t.TempDir()
	logged := make(logSignal, maxSnapshots)
	s := serve(t, func(c *Config) {
		c.TemporaryDirectory, c.StallTimeout = temporary, 2*time.Second
		c.Logger = slog.New(slog.NewTextHandler(logged,
			&slog.HandlerOptions{Level: slog.LevelWarn}))
	})
	for i := range 4 {
		// More than gRPC buffers for a stream.
		must[*clientv3.PutResponse](t)(s.Put(t.Context(), fmt.Sprint(i), strings.Repeat("v", 1<<20)))
	}
	client := pb.NewMaintenanceClient(connect(t, s.address).connection)
	begin := func() pb.Maintenance_SnapshotClient {
		stream, err := client.Snapshot(t.Context(), &pb.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		// It is being sent.
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	deaf := make([]pb.Maintenance_SnapshotClient, maxSnapshots-1)
	for i := range deaf {
		deaf[i] = begin()
	}
	if err := saveSnapshot(t.Context(), s.Client, filepath.Join(t.TempDir(), "db")); err != nil {
		t.Errorf("beside clients that do not read: %v", err)
	}
	deaf = append(deaf, begin())
	stream, err := client.Snapshot(t.Context(), &pb.SnapshotRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one snapshot too many: %v", err)
	}
	for range deaf {
		if line := <-logged; !strings.Contains(line, "client=127.0.0.1:") {
			t.Error(line)
		}
	}
	for _, stream := range deaf {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "read nothing of its snapshot for 2s") {
			t.Errorf("the stream ended with %v", err)
		}
	}
	s.services.snapshots.running.Wait()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	if err := saveSnapshot(t.Context(), s.Client, filepath.Join(t.TempDir(), "db")); err != nil {
		t.Errorf("after the clients that did not read: %v", err)
	}
}

// restored is an etcd that is restored from a snapshot.
func restored(t *testing.T, programs reference.Programs, path string) *endpoint {
	t.Helper()
	return connect(t, restoredAt(t, programs, path))
}

// restoredAt is restored with options for etcdutl. It returns the address.
func restoredAt(
	t *testing.T, programs reference.Programs, path string, options ...string,
) (address string) {
	t.Helper()
	dir := t.TempDir()
	run(t, programs.Etcdutl, append([]string{"snapshot", "restore", path, "--data-dir",
		filepath.Join(dir, "m1"), "--name", "m1", "--initial-cluster", "m1=http://127.0.0.1:1",
		"--initial-advertise-peer-urls", "http://127.0.0.1:1"}, options...)...)
	etcd := reference.Test(t, reference.Options{Dir: dir, Args: []string{"--unsafe-no-fsync"}})
	return etcd.Endpoints()[0]
}

func saveSnapshot(ctx context.Context, c *clientv3.Client, path string) (err error) {
	r, err := c.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	return errors.Join(err, file.Close())
}

func run(t *testing.T, program string, args ...string) []byte {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("%s %v: %v", program, args, err)
	}
	return out
}
