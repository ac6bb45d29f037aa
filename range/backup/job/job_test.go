package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/backup/targettest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var began = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// fake is a Cluster of keyspaces whose rows are their own keys.
type fake struct {
	// unprotecting is called before a protection ends, if it is not nil.
	unprotecting func(keyspace string)
	store        *targettest.Memory

	mu        sync.Mutex
	clock     int64
	rows      map[uint32][]string
	protected map[string]hlc.Timestamp
	// breaks returns the error of an attempt at a node; nil: none.
	breaks func(node keys.NodeID) error
	// gone: Protect answers with ErrTooOld.
	gone bool
	// unprotected: the coordination store was copied before all keyspaces were protected.
	unprotected bool
	// cluster is the id of the cluster.
	cluster string
	// open counts attempts under way for each node, most the highest number.
	open, most map[keys.NodeID]int
}

func newFake(store *targettest.Memory) *fake {
	return &fake{store: store, clock: 100, cluster: "c1", protected: make(map[string]hlc.Timestamp),
		open: make(map[keys.NodeID]int), most: make(map[keys.NodeID]int),
		rows: map[uint32][]string{7: {"a", "b", "c", "k", "l", "x"}, 8: nil, 9: {"m"}}}
}

func (f *fake) Moment(context.Context) (hlc.Timestamp, Coordination, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock++
	return hlc.Timestamp{Wall: f.clock * 1e9}, fakeCoordination{f}, nil
}

func (f *fake) Describe(context.Context) (*Description, error) {
	d := &Description{Cluster: f.cluster, Version: "v1"}
	for id := uint32(7); id < 10; id++ {
		d.Keyspaces = append(d.Keyspaces, Keyspace{Keyspace: manifest.Keyspace{ID: id,
			Name: fmt.Sprintf("ks%d", id), Definition: []byte(`{}`)},
			Partitions: []manifest.Partition{{Bytes: 10, Nodes: []keys.NodeID{1, 2}},
				{Start: []byte("c"), Bytes: 10, Nodes: []keys.NodeID{2, 3}},
				{Start: []byte("l"), Bytes: 10, Nodes: []keys.NodeID{3}}}})
	}
	return d, nil
}

func (f *fake) Protect(_ context.Context, keyspace, backup string, from hlc.Timestamp,
	_ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return ErrTooOld
	}
	f.protected[keyspace+"/"+backup] = from
	return nil
}

func (f *fake) Keep(_ context.Context, keyspace, id string, from hlc.Timestamp,
	_ time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.protected[keyspace+"/"+id] = from
	return nil
}

func (f *fake) Unprotect(_ context.Context, keyspace, backup string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unprotecting != nil {
		f.unprotecting(keyspace)
	}
	delete(f.protected, keyspace+"/"+backup)
	return nil
}

type fakeCoordination struct{ f *fake }

func (fakeCoordination) Revision() int64 { return 42 }

func (c fakeCoordination) Copy(_ context.Context, part func([]byte) error) error {
	c.f.mu.Lock()
	c.f.unprotected = c.f.unprotected || len(c.f.protected) < len(c.f.rows)
	c.f.mu.Unlock()
	for range 3 {
		if err := part([]byte("coordination")); err != nil {
			return err
		}
	}
	return nil
}

func (fakeCoordination) Changes(context.Context, int64, func([]byte) error) (string, error) {
	return "", ErrTooOld
}

func (fakeCoordination) Close() {}

func (f *fake) Nodes(context.Context) ([]keys.NodeID, error) { return []keys.NodeID{1, 2, 3}, nil }

func (f *fake) Export(ctx context.Context, node keys.NodeID, task *Task) (*manifest.Done, error) {
	f.mu.Lock()
	f.open[node]++
	f.most[node] = max(f.most[node], f.open[node])
	var err error
	if f.breaks != nil {
		err = f.breaks(node)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.open[node]--
		f.mu.Unlock()
	}()
	done := &manifest.Done{Unit: task.Number}
	for i, row := range f.rows[task.Unit.Keyspace] {
		if !task.Unit.Span().Contains([]byte(row)) {
			continue
		}
		w, failed := archive.NewWriter(archive.Header{Kind: string(task.Plan.Kind),
			Backup: task.Plan.ID, KeyspaceID: task.Unit.Keyspace, Keyspace: task.Keyspace.Name,
			Start: task.Unit.Start, End: task.Unit.End, After: task.Keyspace.After.Timestamp,
			At: task.Plan.At.Timestamp}, archive.Options{})
		if failed != nil {
			return nil, failed
		}
		if failed := w.Add(archive.Record{Key: []byte(row), Timestamp: task.Plan.At.Timestamp,
			Value: []byte(row)}); failed != nil {
			return nil, failed
		}
		data, sum, failed := w.Finish()
		if failed != nil {
			return nil, failed
		}
		name := manifest.PieceName(task.Plan.ID, task.Number, rand.Uint64(), i)
		if failed := f.store.Put(ctx, name, data); failed != nil {
			return nil, failed
		}
		done.Pieces = append(done.Pieces, manifest.Piece{Name: name, Size: uint64(sum.Size),
			Sum: sum.SHA256, First: []byte(row), Last: []byte(row), Records: 1, Bytes: 2})
	}
	if err != nil {
		return nil, err // after some pieces were written
	}
	return done, nil
}

func spec() Spec {
	return Spec{ID: manifest.NewID(began, 1), Kind: manifest.Full, Keep: time.Hour, Began: began}
}

func config(f *fake) Config {
	return Config{Cluster: f, Target: f.store, Random: rand.Uint64,
		Now: func() time.Time { return began }, RetryPause: time.Millisecond,
		Limits: manifest.UnitLimits{Bytes: 1, Partitions: 1}}
}

// check compares a complete backup with the rows of the cluster, and says what is left over.
func check(t interface {
	Helper()
	Fatalf(string, ...any)
}, f *fake, id string, ids archive.Identities) {
	t.Helper()
	sealed, err := f.store.Get(context.Background(), manifest.ManifestName(id))
	if err != nil {
		t.Fatalf("%v", err)
	}
	data, err := archive.Unseal(sealed, manifest.ManifestKind, ids)
	if err != nil {
		t.Fatalf("%v", err)
	}
	m, err := manifest.DecodeManifest(data)
	if err != nil {
		t.Fatalf("%v", err)
	}
	named := map[string]bool{manifest.PlanName(id): true, manifest.HeadName(id): true,
		manifest.ManifestName(id): true}
	got := map[uint32][]string{}
	for i := range m.Done {
		named[manifest.UnitName(id, i)] = true
		for _, p := range m.Done[i].Pieces {
			named[p.Name] = true
			data := f.store.Objects()[p.Name]
			if archive.SumOf(data).SHA256 != p.Sum {
				t.Fatalf("%s is not what was written", p.Name)
			}
			r, err := archive.Open(data, nil)
			if err != nil {
				t.Fatalf("%v", err)
			}
			for {
				record, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil || record.Timestamp != m.Head.At.Timestamp {
					t.Fatalf("%v: a record of %v", err, record.Timestamp)
				}
				got[m.Units[i].Keyspace] = append(got[m.Units[i].Keyspace], string(record.Key))
			}
		}
	}
	for _, ks := range m.Keyspaces {
		if !slices.Equal(got[ks.ID], f.rows[ks.ID]) {
			t.Fatalf("keyspace %d has %q instead of %q", ks.ID, got[ks.ID], f.rows[ks.ID])
		}
	}
	text := ""
	for _, name := range m.Coordination.Names {
		named[name] = true
		part, err := archive.Unseal(f.store.Objects()[name], manifest.CoordinationKind, ids)
		if err != nil {
			t.Fatalf("%v", err)
		}
		text += string(part)
	}
	if text != strings.Repeat("coordination", 3) || m.Coordination.Revision != 42 {
		t.Fatalf("the coordination store is %q at %d", text, m.Coordination.Revision)
	}
	for name := range f.store.Objects() {
		if !named[name] {
			t.Fatalf("%s is left over", name)
		}
	}
	if len(f.protected) != 0 {
		t.Fatalf("still protected: %v", f.protected)
	}
}

func TestRun(t *testing.T) {
	f := newFake(targettest.NewMemory())
	var last Progress
	c := config(f)
	c.Progress = func(p Progress) { last = p }
	head, err := Run(t.Context(), spec(), c)
	if err != nil {
		t.Fatal(err)
	}
	check(t, f, head.ID, nil)
	if head.Totals.Records != 7 || head.Totals.Keyspaces != 3 || head.Partial || last.Done != 9 ||
		last.Units != 9 || last.Step != "done" || last.Totals != head.Totals {
		t.Errorf("%+v, %+v", head, last)
	}
	for node, n := range f.most {
		if n > 2 {
			t.Errorf("node %d had %d units at the same time", node, n)
		}
	}
}

func identity(t *testing.T) archive.Identities {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return archive.Identities{id}
}

// An encrypted backup is continued by the job's identity, and read by the recipient's.
func TestRunEncrypted(t *testing.T) {
	owner, own := identity(t), identity(t)
	s := spec()
	s.Recipients, s.Identity = owner.Recipients(), own
	f := newFake(targettest.NewMemory())
	for _, crash := range []int{12, 0} {
		f.store.CrashAt(crash, true)
		head, err := Run(t.Context(), s, config(f))
		if crash == 0 {
			if err != nil || head.Recipients != 1 {
				t.Fatal(head, err)
			}
			check(t, f, s.ID, owner)
		} else if !errors.Is(err, targettest.ErrCrash) {
			t.Fatal(err)
		}
	}
	for name, data := range f.store.Objects() {
		if name != manifest.HeadName(s.ID) && !strings.Contains(name, "/piece/") &&
			bytes.Contains(data, []byte("ks7")) {
			t.Errorf("%s is readable", name)
		}
	}
}

// A backup for as many recipients as the core accepts (placement/server/backups) is made: the key
// of the job itself has room beside them.
func TestMostRecipients(t *testing.T) {
	const most = 63
	s := spec()
	s.Identity = identity(t)
	owner := identity(t)
	for range most {
		s.Recipients = append(s.Recipients, owner.Recipients()...)
	}
	f := newFake(targettest.NewMemory())
	if head, err := Run(t.Context(), s, config(f)); err != nil || head.Recipients != most {
		t.Fatal(head, err)
	}
	check(t, f, s.ID, owner)
}

// Whenever a Run is killed, a later one completes the backup, and leaves nothing over.
func TestRunAfterCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake(targettest.NewMemory())
		crashes := 0
		for {
			at := 0
			if crashes < 6 {
				at = rapid.IntRange(0, 40).Draw(t, "crash at")
			}
			f.store.CrashAt(at, rapid.Bool().Draw(t, "after"))
			_, err := Run(context.Background(), spec(), config(f))
			f.store.CrashAt(0, false)
			if err == nil {
				break
			}
			if !errors.Is(err, targettest.ErrCrash) {
				t.Fatalf("%v", err)
			}
			crashes++
		}
		check(t, f, spec().ID, nil)
	})
}

// Two Runs of one backup at the same time do each other no harm.
func TestTwoRuns(t *testing.T) {
	f := newFake(targettest.NewMemory())
	var all sync.WaitGroup
	errs := make([]error, 2)
	for i := range errs {
		all.Go(func() { _, errs[i] = Run(t.Context(), spec(), config(f)) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	// Left-over pieces of the slower Run go with the next Run, or with the backup.
	if _, err := Run(t.Context(), spec(), config(f)); err != nil {
		t.Fatal(err)
	}
	check(t, f, spec().ID, nil)
}

// Units of a node that fails go to others; one that fails everywhere ends the Run, in words.
func TestNodesFail(t *testing.T) {
	f := newFake(targettest.NewMemory())
	lost := errors.New("the connection is lost")
	f.breaks = func(node keys.NodeID) error {
		if node != 3 {
			return lost
		}
		return nil
	}
	if _, err := Run(t.Context(), spec(), config(f)); err != nil {
		t.Fatal(err)
	}
	check(t, f, spec().ID, nil)

	f = newFake(targettest.NewMemory())
	f.breaks = func(keys.NodeID) error { return lost }
	if _, err := Run(t.Context(), spec(), config(f)); !errors.Is(err, lost) ||
		!strings.Contains(err.Error(), "10 times") {
		t.Error(err)
	}
	// The same Spec goes on later.
	f.breaks = nil
	if _, err := Run(t.Context(), spec(), config(f)); err != nil {
		t.Fatal(err)
	}
	check(t, f, spec().ID, nil)
}

// The history is protected before the coordination store is copied, which may take long.
func TestProtectedBeforeCopy(t *testing.T) {
	f := newFake(targettest.NewMemory())
	if _, err := Run(t.Context(), spec(), config(f)); err != nil || f.unprotected {
		t.Errorf("%v; unprotected: %t", err, f.unprotected)
	}
}

// A parent of another cluster is no parent, and trying again does not help.
func TestParentOfAnotherCluster(t *testing.T) {
	f := newFake(targettest.NewMemory())
	full, err := Run(t.Context(), spec(), config(f))
	if err != nil {
		t.Fatal(err)
	}
	f.cluster = "c2"
	if _, err := Run(t.Context(), Spec{ID: manifest.NewID(began, 2), Kind: manifest.Incremental,
		Parent: full.ID, Keep: time.Hour, Began: began}, config(f)); !errors.Is(err, manifest.ErrBroken) {
		t.Error(err)
	}
}

// A chain with a hole is not continued, and neither is one of which a part goes while the backup is
// made.
func TestParentWithoutItsParent(t *testing.T) {
	f := newFake(targettest.NewMemory())
	full, err := Run(t.Context(), spec(), config(f))
	if err != nil {
		t.Fatal(err)
	}
	next := func(n uint32, parent string) Spec {
		return Spec{ID: manifest.NewID(began, n), Kind: manifest.Incremental, Parent: parent,
			Keep: time.Hour, Began: began}
	}
	one, err := Run(t.Context(), next(2, full.ID), config(f))
	if err != nil {
		t.Fatal(err)
	}
	lose := func() {
		if err := f.store.Delete(t.Context(), manifest.HeadName(full.ID)); err != nil {
			t.Fatal(err)
		}
	}
	c := config(f)
	c.Progress = func(p Progress) {
		if p.Step == "complete the backup" {
			lose()
		}
	}
	for n := range uint32(2) {
		if _, err := Run(t.Context(), next(3+n, one.ID), c); !errors.Is(err, manifest.ErrBroken) {
			t.Error(err)
		}
	}
}

func TestIncremental(t *testing.T) {
	f := newFake(targettest.NewMemory())
	full, err := Run(t.Context(), spec(), config(f))
	if err != nil {
		t.Fatal(err)
	}
	s := Spec{ID: manifest.NewID(began, 2), Kind: manifest.Incremental, Parent: full.ID,
		Keep: time.Hour, Began: began, Includes: func(name string) bool { return name != "ks8" }}
	f.gone = true
	if _, err := Run(t.Context(), s, config(f)); !errors.Is(err, ErrTooOld) ||
		!strings.Contains(err.Error(), "full backup") {
		t.Error(err)
	}
	f.gone = false
	head, err := Run(t.Context(), s, config(f))
	if err != nil {
		t.Fatal(err)
	}
	if head.After != full.At || head.Parent != full.ID || !head.Partial ||
		!slices.Equal(head.Keyspaces, []uint32{7, 9}) {
		t.Errorf("%+v", head)
	}
	s.ID, s.Parent = manifest.NewID(began, 3), manifest.NewID(began, 99)
	if _, err := Run(t.Context(), s, config(f)); !errors.Is(err, target.ErrNotFound) {
		t.Error(err)
	}
	if err := Cancel(t.Context(), head.ID, f, f.store, []string{"ks7"}); err != nil {
		t.Fatal(err)
	}
	for name := range f.store.Objects() {
		if strings.HasPrefix(name, manifest.Prefix(head.ID)) {
			t.Errorf("%s is left over", name)
		}
	}
}

// The history from the moment on is kept for the schedule before the protection of the backup ends:
// there is no time at which the next backup could not begin.
func TestScheduleKeepsHistory(t *testing.T) {
	f := newFake(targettest.NewMemory())
	s := spec()
	s.Schedule, s.ScheduleKeep = "nightly", time.Hour
	ended := 0
	f.unprotecting = func(keyspace string) {
		if f.protected[keyspace+"/"+ScheduleID("nightly")].IsZero() {
			t.Errorf("the history of %s is not kept", keyspace)
		}
		ended++
	}
	head, err := Run(t.Context(), s, config(f))
	if err != nil {
		t.Fatal(err)
	}
	if ended != len(head.Keyspaces) || head.Schedule != "nightly" {
		t.Errorf("%d protections ended of the %d keyspaces of %+v", ended, len(head.Keyspaces), head)
	}
	for keyspace, from := range f.protected {
		if from != head.At.Timestamp {
			t.Errorf("%s is kept from %v on, the backup is of %v", keyspace, from, head.At)
		}
	}
}
