package changelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/changelog"
	"github.com/tidemarkdb/tidemark/range/backup/export"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/backup/targettest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var began = time.Date(2026, 1, 31, 23, 59, 50, 0, time.UTC)

// second is how far the model's clock goes with each step.
const second = int64(time.Second)

// space is a keyspace with all versions of its rows, the newest first.
type space struct {
	id       uint32
	name     string
	versions map[string][]archive.Record
	splits   []string
	// created and dropped are moments; dropped is 0 if it is there.
	created, dropped int64
}

// at is what could be read at a moment.
func (s *space) at(moment int64) map[string]string {
	state := make(map[string]string)
	for key, versions := range s.versions {
		for _, r := range versions {
			if r.Timestamp.Wall > moment {
				continue
			}
			if r.Kind == archive.Value && (r.Expiry == 0 || r.Expiry > moment) {
				state[key] = fmt.Sprintf("%s until %d", r.Value, r.Expiry)
			}
			break
		}
	}
	return state
}

// world is a cluster whose nodes write what a log and backups ask for.
type world struct {
	t      *rapid.T
	store  *targettest.Memory
	clock  int64
	spaces []*space
	// page is how many versions a page has; fails says whether the next request of a node fails.
	page  int
	fails func() bool
	kept  map[string]hlc.Timestamp
	// changes are those of the coordination store, of which those up to oldest are compacted; written
	// has their times.
	changes []byte
	written []int64
	oldest  int64
}

func (w *world) find(id uint32) *space {
	for _, s := range w.spaces {
		if s.id == id && s.dropped == 0 {
			return s
		}
	}
	return nil
}

// Page implements export.Source. As a replica does, it answers with the first rows, and of a row
// with the oldest versions first.
func (w *world) Page(_ context.Context, q export.Query) (export.Page, error) {
	s := w.find(uint32(q.Keyspace))
	if s == nil {
		return export.Page{}, job.ErrGone
	}
	p := export.Page{Over: true}
	for _, key := range slices.Sorted(maps.Keys(s.versions)) {
		if !q.Span.Contains([]byte(key)) {
			continue
		}
		for _, r := range slices.Backward(s.versions[key]) {
			switch {
			case q.At.Less(r.Timestamp), r.Timestamp.LessEq(q.After),
				key == string(q.Span.Start) && r.Timestamp.LessEq(q.Above):
				continue
			}
			if n := len(p.Records); n == w.page && q.Every {
				p.Over, p.Rest = false, keys.Span{Start: []byte(key), End: q.Span.End}
				if last := p.Records[n-1]; string(last.Key) == key {
					p.Above = last.Timestamp
				}
				return sorted(p), nil
			}
			p.Records = append(p.Records, r)
		}
		if n := len(p.Records); n > 0 && !q.Every {
			// The newest version alone, and at a moment only if there is a value.
			newest := p.Records[n-1]
			for len(p.Records) > 0 && string(p.Records[len(p.Records)-1].Key) == key {
				p.Records = p.Records[:len(p.Records)-1]
			}
			if string(newest.Key) == key && (!q.After.IsZero() || newest.Kind == archive.Value &&
				(newest.Expiry == 0 || newest.Expiry > q.At.Wall)) {
				p.Records = append(p.Records, newest)
			}
		}
	}
	return sorted(p), nil
}

func sorted(p export.Page) export.Page {
	slices.SortStableFunc(p.Records, func(a, b archive.Record) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return b.Timestamp.Compare(a.Timestamp)
	})
	return p
}

func (w *world) Moment(context.Context) (hlc.Timestamp, job.Coordination, error) {
	state := &coordination{revision: int64(len(w.changes)), oldest: w.oldest,
		changes: slices.Clone(w.changes)}
	w.clock += second
	return hlc.Timestamp{Wall: w.clock, Logical: uint32(w.clock / second % 2)}, state, nil
}

// coordination is a coordination store whose changes are numbers; its state is all of them.
type coordination struct {
	revision, oldest int64
	changes          []byte
}

func (c *coordination) Revision() int64 { return c.revision }

func (c *coordination) Copy(_ context.Context, part func([]byte) error) error {
	return part(c.changes)
}

func (c *coordination) Changes(_ context.Context, since int64, part func([]byte) error) (string,
	error) {
	if since < c.oldest {
		return "", job.ErrTooOld
	}
	return "digest", part(c.changes[since:])
}

func (c *coordination) Close() {}

func (w *world) Describe(context.Context) (*job.Description, error) {
	d := &job.Description{Cluster: "c1"}
	for _, s := range w.spaces {
		if s.dropped != 0 {
			continue
		}
		parts := []manifest.Partition{{Nodes: []keys.NodeID{1, 2}}}
		for _, row := range s.splits {
			parts = append(parts, manifest.Partition{Start: []byte(row), Nodes: []keys.NodeID{2, 3}})
		}
		d.Keyspaces = append(d.Keyspaces, job.Keyspace{Keyspace: manifest.Keyspace{ID: s.id,
			Name: s.name, Definition: []byte(`{}`)}, Partitions: parts})
	}
	return d, nil
}

func (w *world) Protect(context.Context, string, string, hlc.Timestamp, time.Duration) error {
	return nil
}

func (w *world) Unprotect(context.Context, string, string) error { return nil }

func (w *world) Keep(_ context.Context, keyspace, id string, from hlc.Timestamp,
	_ time.Duration) error {
	w.kept[keyspace+"/"+id] = from
	return nil
}

func (w *world) Nodes(context.Context) ([]keys.NodeID, error) {
	return []keys.NodeID{1, 2, 3}, nil
}

func (w *world) worker() *export.Worker {
	worker, err := export.NewWorker(export.Config{Source: w, Target: w.store, Random: rand.Uint64,
		PieceBytes: 40})
	if err != nil {
		w.t.Fatal(err)
	}
	return worker
}

func (w *world) Export(ctx context.Context, _ keys.NodeID, task *job.Task) (*manifest.Done,
	error) {
	return w.worker().Write(ctx, export.Unit{Backup: task.Plan.ID, Kind: task.Plan.Kind,
		Number: task.Number, Keyspace: task.Keyspace.Name, Query: export.Query{
			Keyspace: keys.KeyspaceID(task.Keyspace.ID), Span: task.Unit.Span(),
			After: task.Keyspace.After.Timestamp, At: task.Plan.At.Timestamp}})
}

var errNode = errors.New("the node has failed")

func (w *world) WriteChanges(ctx context.Context, _ keys.NodeID,
	task *changelog.Task) ([]manifest.Piece, error) {
	c := export.Changes{Log: task.Log, Round: task.After}
	for _, whole := range []bool{true, false} {
		for _, s := range task.Spans {
			q := export.Query{Keyspace: keys.KeyspaceID(s.Keyspace.ID), Span: s.Rows, After: task.After,
				At: task.At, Every: true}
			if whole {
				if !s.Keyspace.After.IsZero() {
					continue
				}
				q.After, q.At, q.Every = hlc.Timestamp{}, task.After, false
			}
			c.Of = append(c.Of, export.NamedQuery{Query: q, Name: s.Keyspace.Name})
		}
	}
	pieces, err := w.worker().WriteChanges(ctx, c)
	if err == nil && w.fails() {
		err = errNode // after the pieces were written
	}
	return pieces, err
}

func (w *world) spec() changelog.Spec {
	return changelog.Spec{ID: manifest.NewID(began, 1000), Schedule: "nightly", Keep: time.Hour}
}

func (w *world) config() changelog.Config {
	return changelog.Config{Cluster: w, Target: w.store, Random: rand.Uint64,
		Now: func() time.Time { return began }, RetryPause: time.Microsecond}
}

// restored is what a moment has of each keyspace.
func (w *world) restored(c *catalog.Catalog, at hlc.Timestamp) (all map[string]map[string]string,
	log string) {
	found, err := c.Resolve(context.Background(), at, nil)
	if err != nil {
		w.t.Fatalf("%v: %v", at, err)
	}
	point, err := c.Point(context.Background(), found.Backup, found.Log, found.At)
	if err != nil {
		w.t.Fatalf("%v: %v", at, err)
	}
	if point.At != at {
		w.t.Fatalf("the moment %v is restored as %v", at, point.At)
	}
	w.coordination(c, point)
	all = make(map[string]map[string]string)
	for i := range point.Keyspaces {
		ks := &point.Keyspaces[i]
		all[ks.Name] = make(map[string]string)
		for _, u := range point.Units {
			if u.Keyspace != ks.ID {
				continue
			}
			last := ""
			for r, err := range c.Records(context.Background(), point, ks, u.Span()) {
				if err != nil {
					w.t.Fatalf("%v: %v", at, err)
				}
				if string(r.Key) <= last && last != "" {
					w.t.Fatalf("%q comes after %q", r.Key, last)
				}
				last = string(r.Key)
				all[ks.Name][last] = fmt.Sprintf("%s until %d", r.Value, r.Expiry)
			}
		}
	}
	return all, found.Log
}

// coordination compares the coordination store of a moment: it has all changes of before the round or
// backup before, and none that came later.
func (w *world) coordination(c *catalog.Catalog, p *manifest.Point) {
	read := func(blob *manifest.Blob) (all []byte) {
		if err := c.Coordination(context.Background(), blob, func(part []byte) error {
			all = append(all, part...)
			return nil
		}); err != nil {
			w.t.Fatal(err)
		}
		return all
	}
	base, sets := p.Coordination()
	state := read(base)
	for _, set := range sets {
		changes := read(set)
		if int(set.Since) > len(state) || set.Revision != set.Since+int64(len(changes)) {
			w.t.Fatalf("the changes from %d to %d follow a state of %d", set.Since, set.Revision,
				len(state))
		}
		state = append(state[:set.Since:set.Since], changes...)
	}
	if !bytes.Equal(state, w.changes[:len(state)]) {
		w.t.Fatalf("the coordination store has %v, want %v", state, w.changes)
	}
	if n := len(state); n > 0 && w.written[n-1] > p.At.Wall {
		w.t.Fatalf("the coordination store has a change of %d at %v", w.written[n-1], p.At)
	}
	// The last round that ends at or before the moment, or the backup, has all that came before it.
	end := p.Layers[len(p.Layers)-1].Head.At.Wall
	for _, r := range p.Rounds {
		if !p.At.Less(r.At.Timestamp) {
			end = max(end, r.At.Wall)
		}
	}
	if n := len(state); n < len(w.changes) && w.written[n] < end-second {
		w.t.Fatalf("the coordination store at %v lacks the change of %d", p.At, w.written[n])
	}
}

// Whatever is written, created, dropped, restored and split, whoever writes the rounds and however
// often nodes fail: from the first backup of a log on, the log and the backups have every moment.
func TestEveryMomentModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: targettest.NewMemory(), clock: began.UnixNano(),
			page: rapid.IntRange(1, 4).Draw(t, "page"), kept: make(map[string]hlc.Timestamp)}
		var mu sync.Mutex
		failing := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "failures"), 0))
		w.fails = func() bool {
			mu.Lock()
			defer mu.Unlock()
			return failing.IntN(6) == 0
		}
		c := catalog.New(w.store, nil)
		c.SetOverlayBytes(rapid.SampledFrom([]int{8, 64, 1 << 20}).Draw(t, "overlay"))
		keyOf := rapid.StringMatching(`[a-e]{1,2}`)
		create := func(old bool) {
			id := uint32(len(w.spaces) + 1)
			s := &space{id: id, name: fmt.Sprintf("ks%d", id), versions: make(map[string][]archive.Record),
				created: w.clock}
			if old { // a restore gives it a name after it has filled it
				for range 3 {
					w.clock++
					key := keyOf.Draw(t, "old key")
					s.versions[key] = append([]archive.Record{{Key: []byte(key), Value: []byte("old"),
						Timestamp: hlc.Timestamp{Wall: w.clock - 2*second}}}, s.versions[key]...)
				}
			}
			w.spaces = append(w.spaces, s)
		}
		create(false)
		writer, err := changelog.Open(t.Context(), w.spec(), w.config(), hlc.Timestamp{})
		if err != nil {
			t.Fatal(err)
		}
		var heads []*manifest.Head
		var moments []hlc.Timestamp
		// seen are the keyspaces that the log has at the end of each round.
		seen := map[hlc.Timestamp][]string{}
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			w.clock++
			var there []*space
			for _, s := range w.spaces {
				if s.dropped == 0 {
					there = append(there, s)
				}
			}
			switch rapid.IntRange(0, 13).Draw(t, "step") {
			case 12, 13:
				w.changes = append(w.changes, byte(len(w.changes)))
				w.written = append(w.written, w.clock)
				if rapid.IntRange(0, 5).Draw(t, "compacts") == 0 {
					w.oldest = int64(len(w.changes))
				}
			case 0:
				create(rapid.Bool().Draw(t, "restored"))
			case 1:
				if len(there) > 1 {
					there[rapid.IntRange(0, len(there)-1).Draw(t, "which")].dropped = w.clock
				}
			case 2:
				s := there[0]
				s.splits = rapid.SliceOfNDistinct(keyOf, 0, 3, rapid.ID[string]).Draw(t, "splits")
				slices.Sort(s.splits)
			case 3:
				head := backup(t, w, heads)
				heads = append(heads, head)
				moments = append(moments, head.At.Timestamp)
			case 4, 5, 6:
				r, err := writer.Round(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, ks := range r.Keyspaces {
					seen[r.At.Timestamp] = append(seen[r.At.Timestamp], ks.Name)
				}
			case 7: // another leader, who knows where the log ended, or not
				last := writer.State().Round
				if rapid.Bool().Draw(t, "forgets") {
					last = hlc.Timestamp{}
				}
				at := writer.State().At
				if writer, err = changelog.Open(t.Context(), w.spec(), w.config(), last); err != nil {
					t.Fatal(err)
				}
				if writer.State().At != at {
					t.Fatalf("the log ended at %v, and goes on at %v", at, writer.State().At)
				}
			default:
				s := there[rapid.IntRange(0, len(there)-1).Draw(t, "into")]
				key := keyOf.Draw(t, "key")
				r := archive.Record{Key: []byte(key), Timestamp: hlc.Timestamp{Wall: w.clock},
					Value: fmt.Appendf(nil, "v%d", w.clock)}
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					r.Kind, r.Value = archive.Tombstone, nil
				case 1:
					r.Expiry = w.clock + rapid.Int64Range(1, 4*second).Draw(t, "ttl")
				}
				s.versions[key] = append([]archive.Record{r}, s.versions[key]...)
				moments = append(moments, r.Timestamp)
			}
		}
		if len(heads) == 0 {
			return
		}
		end := writer.State().At
		for _, at := range moments {
			if at.Less(heads[0].At.Timestamp) || end.Less(at) {
				continue
			}
			w.compare(c, at, seen)
		}
		found, err := c.Verify(t.Context(), "", nil)
		if err != nil || len(found.Problems) > 0 || len(found.Logs) > 1 {
			t.Fatalf("%v: %+v", err, found)
		}
		// Old ones go; the moments that are to stay do.
		keep := moments[rapid.IntRange(0, len(moments)-1).Draw(t, "keep")]
		if _, err := c.Expire(t.Context(), "c1", "nightly", keep); err != nil {
			t.Fatal(err)
		}
		for _, at := range moments {
			if at.Less(keep) || at.Less(heads[0].At.Timestamp) || end.Less(at) {
				continue
			}
			w.compare(c, at, seen)
		}
		if found, err = c.Verify(t.Context(), "", nil); err != nil || len(found.Problems) > 0 {
			t.Fatalf("%v: %+v", err, found)
		}
	})
}

// compare compares a moment with what could be read at the moment, of the keyspaces that were there
// at the end of the round that has the moment.
func (w *world) compare(c *catalog.Catalog, at hlc.Timestamp, seen map[hlc.Timestamp][]string) {
	w.t.Helper()
	got, log := w.restored(c, at)
	for _, s := range w.spaces {
		state, ok := got[s.name]
		if !ok {
			continue
		}
		if want := s.at(at.Wall); !maps.Equal(state, want) {
			w.t.Fatalf("%s at %v has %v, want %v", s.name, at, state, want)
		}
	}
	if log == "" {
		return // a backup has those that were there at its moment
	}
	// Which keyspaces there are is known at the ends of rounds.
	first := hlc.Timestamp{}
	for end := range seen {
		if at.LessEq(end) && (first.IsZero() || end.Less(first)) {
			first = end
		}
	}
	for _, name := range seen[first] {
		if _, ok := got[name]; !ok {
			w.t.Fatalf("%s is missing at %v", name, at)
		}
	}
}

// backup makes a full backup, or one that continues another.
func backup(t *rapid.T, w *world, heads []*manifest.Head) *manifest.Head {
	s := job.Spec{ID: manifest.NewID(began, uint32(len(heads))), Kind: manifest.Full,
		Keep: time.Hour, Began: began, Schedule: "nightly", ScheduleKeep: time.Hour}
	if len(heads) > 0 && rapid.Bool().Draw(t, "incremental") {
		s.Kind, s.Parent = manifest.Incremental,
			heads[rapid.IntRange(0, len(heads)-1).Draw(t, "parent")].ID
	}
	head, err := job.Run(context.Background(), s, job.Config{Cluster: w, Target: w.store,
		Random: rand.Uint64, Now: func() time.Time { return began },
		Limits: manifest.UnitLimits{Bytes: 1, Partitions: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return head
}

// Two leaders write a round after the same one: one holds, and both go on from there.
func TestTwoLeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: targettest.NewMemory(), clock: began.UnixNano(), page: 2,
			fails: func() bool { return false }, kept: make(map[string]hlc.Timestamp)}
		w.spaces = []*space{{id: 1, name: "ks1", versions: make(map[string][]archive.Record)}}
		var writers [2]*changelog.Writer
		for i := range writers {
			var err error
			if writers[i], err = changelog.Open(t.Context(), w.spec(), w.config(),
				hlc.Timestamp{}); err != nil {
				t.Fatal(err)
			}
		}
		heads := []*manifest.Head{backup(t, w, nil)}
		for n := range rapid.IntRange(2, 12).Draw(t, "rounds") {
			w.clock += second
			s := w.spaces[0]
			s.versions["a"] = append([]archive.Record{{Key: []byte("a"), Value: fmt.Append(nil, n),
				Timestamp: hlc.Timestamp{Wall: w.clock}}}, s.versions["a"]...)
			r, err := writers[rapid.IntRange(0, 1).Draw(t, "leader")].Round(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if r.At.Less(heads[0].At.Timestamp) {
				continue
			}
			w.compare(catalog.New(w.store, nil), r.At.Timestamp, nil)
		}
	})
}

// Of several logs and backups with a moment, a restore takes one with all keyspaces that it needs.
func TestPartialLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: targettest.NewMemory(), clock: began.UnixNano(), page: 2,
			fails: func() bool { return false }, kept: make(map[string]hlc.Timestamp)}
		for id := range uint32(2) {
			w.spaces = append(w.spaces, &space{id: id + 1, name: fmt.Sprintf("ks%d", id+1),
				versions: make(map[string][]archive.Record)})
		}
		open := func(spec changelog.Spec) *changelog.Writer {
			writer, err := changelog.Open(t.Context(), spec, w.config(), hlc.Timestamp{})
			if err != nil {
				t.Fatal(err)
			}
			return writer
		}
		round := func(writer *changelog.Writer) hlc.Timestamp {
			if _, err := writer.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
			return writer.State().At
		}
		only := func(name string) func(string) bool {
			return func(other string) bool { return name == other }
		}
		all, part := w.spec(), w.spec()
		part.ID, part.Schedule, part.Includes = manifest.NewID(began, 2000), "fast", only("ks1")
		logs := [2]*changelog.Writer{open(all), open(part)}
		backup(t, w, nil)
		w.clock += second
		at := hlc.Timestamp{Wall: w.clock}
		whole := round(logs[0])
		newest := round(logs[1])
		unflagged := rapid.Bool().Draw(t, "unflagged") // as version 0.1 writes heads
		if unflagged {
			name := manifest.LogHeadName(part.ID)
			data, err := archive.Unseal(w.store.Objects()[name], manifest.LogHeadKind, nil)
			if err != nil {
				t.Fatal(err)
			}
			sealed, _, err := archive.Seal(manifest.LogHeadKind,
				bytes.Replace(data, []byte(`,"partial":true`), nil, 1), archive.Options{})
			if err != nil || !bytes.Contains(data, []byte(`"partial"`)) {
				t.Fatal(err, string(data))
			}
			w.store.Set(name, sealed)
		}
		c := catalog.New(w.store, nil)
		resolved := func(at hlc.Timestamp, wants func(string) bool, log string, want hlc.Timestamp) {
			t.Helper()
			found, err := c.Resolve(t.Context(), at, wants)
			if err != nil || found.Log != log || found.At != want {
				t.Fatalf("%v: %v: %+v, want the log %q and %v", at, err, found, log, want)
			}
		}
		resolved(at, nil, all.ID, at)
		resolved(at, only("ks2"), all.ID, at)
		if unflagged { // only the backup of the schedule says that the log is partial
			job.Run(t.Context(), job.Spec{ID: manifest.NewID(began, 500), Kind: manifest.Full,
				Keep: time.Hour, Began: began, Schedule: "fast", Includes: part.Includes},
				job.Config{Cluster: w, Target: w.store, Random: rand.Uint64,
					Now: func() time.Time { return began }})
			newest = round(logs[1])
		}
		resolved(catalog.Newest, nil, all.ID, whole)
		resolved(catalog.Newest, only("ks2"), all.ID, whole)
		resolved(catalog.Newest, only("ks1"), part.ID, newest)
		resolved(catalog.Newest, catalog.NoKeyspaces, part.ID, newest)
		// A partial backup later than all rounds is not the newest moment of all keyspaces.
		head, err := job.Run(t.Context(), job.Spec{ID: manifest.NewID(began, 600), Kind: manifest.Full,
			Keep: time.Hour, Began: began, Includes: only("ks1")}, job.Config{Cluster: w, Target: w.store,
			Random: rand.Uint64, Now: func() time.Time { return began }})
		if err != nil {
			t.Fatal(err)
		}
		resolved(catalog.Newest, nil, all.ID, whole)
		resolved(catalog.Newest, only("ks1"), "", head.At.Timestamp)
		resolved(head.At.Timestamp, nil, "", head.At.Timestamp)
		// Nobody can know whether some keyspaces or the newest moment are meant, if it is much newer.
		w.clock += 3600 * second
		newest = round(logs[1])
		if found, err := c.Resolve(t.Context(), catalog.Newest, nil); !errors.Is(err,
			catalog.ErrNoPoint) {
			t.Fatalf("%v: %+v", err, found)
		}
		resolved(catalog.Newest, only("ks1"), part.ID, newest)
		resolved(newest, nil, part.ID, newest)
		resolved(at, nil, all.ID, at)
	})
}

// A log without identity is refused to be read by others, and goes on with that of the schedule.
func TestEncryptedLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: targettest.NewMemory(), clock: began.UnixNano(), page: 2,
			fails: func() bool { return false }, kept: make(map[string]hlc.Timestamp)}
		w.spaces = []*space{{id: 1, name: "ks1", versions: make(map[string][]archive.Record)}}
		theirs, own := identity(t), identity(t)
		spec := w.spec()
		spec.Recipients, spec.Identity = theirs.Recipients(), own
		for range 2 {
			writer, err := changelog.Open(t.Context(), spec, w.config(), hlc.Timestamp{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := writer.Round(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		logs, _, err := catalog.New(w.store, nil).Logs(t.Context())
		if err != nil || len(logs) != 1 || logs[0].Rounds != 2 {
			t.Fatalf("%v: %+v", err, logs)
		}
		if _, err := catalog.New(w.store, nil).Round(t.Context(), spec.ID,
			logs[0].First); !errors.Is(err, archive.ErrNoIdentity) {
			t.Fatal(err)
		}
		if _, err := catalog.New(w.store, theirs).Round(t.Context(), spec.ID,
			logs[0].First); err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.New(w.store, nil).DeleteLog(t.Context(), spec.ID); err != nil || len(w.store.Objects()) > 0 {
			t.Fatalf("%v: %d objects are left", err, len(w.store.Objects()))
		}
		if _, err := catalog.New(w.store, nil).Round(t.Context(), spec.ID, logs[0].First); !errors.Is(err,
			target.ErrNotFound) {
			t.Fatal(err)
		}
	})
}

// A log that cannot be read blocks no other: that of earlier recipients, or one that is damaged.
func TestUnreadableLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, store: targettest.NewMemory(), clock: began.UnixNano(), page: 2,
			fails: func() bool { return false }, kept: make(map[string]hlc.Timestamp)}
		w.spaces = []*space{{id: 1, name: "ks1", versions: make(map[string][]archive.Record)}}
		theirs, damage := []archive.Identities{identity(t), identity(t)}, rapid.IntRange(0, 2).Draw(t,
			"damage")
		var moments []hlc.Timestamp
		var specs []changelog.Spec
		for i := range theirs {
			spec := w.spec()
			spec.ID, spec.Recipients = manifest.NewID(began, uint32(i)), theirs[i].Recipients()
			spec.Identity = identity(t)
			specs = append(specs, spec)
			writer, err := changelog.Open(t.Context(), spec, w.config(), hlc.Timestamp{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Run(t.Context(), job.Spec{ID: manifest.NewID(began, uint32(i)),
				Kind: manifest.Full, Keep: time.Hour, Began: began, Schedule: "nightly",
				Recipients: spec.Recipients, Identity: spec.Identity}, job.Config{Cluster: w, Target: w.store,
				Random: rand.Uint64, Now: func() time.Time { return began }}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if _, err := writer.Round(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			moments = append(moments, writer.State().At)
			// Damage to the first log may come on top of the missing identity.
			name := manifest.RoundName(spec.ID, writer.State().Round)
			if damage == 2 {
				name = manifest.LogHeadName(spec.ID)
			}
			if i == 0 && damage > 0 {
				spoilt := bytes.Clone(w.store.Objects()[name])
				spoilt[len(spoilt)/2] ^= 1
				w.store.Set(name, spoilt)
			}
		}
		c := catalog.New(w.store, theirs[1])
		for _, at := range []hlc.Timestamp{moments[1], catalog.Newest} {
			found, err := c.Resolve(t.Context(), at, nil)
			if err != nil || found.Log != specs[1].ID || found.At != moments[1] {
				t.Fatalf("%v: %v: %+v", at, err, found)
			}
		}
		if found, err := c.Resolve(t.Context(), moments[0], nil); !errors.Is(err, catalog.ErrNoPoint) ||
			damage == 0 && !errors.Is(err, archive.ErrNoIdentity) ||
			damage == 2 && !errors.Is(err, archive.ErrCorrupt) {
			t.Fatalf("%v: %+v", err, found)
		}
		// A later moment that cannot be read is not answered with an earlier one.
		if found, err := catalog.New(w.store, theirs[0]).Resolve(t.Context(), catalog.Newest,
			nil); !errors.Is(err, archive.ErrNoIdentity) {
			t.Fatalf("%v: %+v", err, found)
		}
		found, err := c.Verify(t.Context(), "", nil)
		if err != nil || !found.Sealed || (damage > 0) != (len(found.Problems) > 0) {
			t.Fatalf("%v: %+v", err, found)
		}
	})
}

func identity(t *rapid.T) archive.Identities {
	one, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return archive.Identities{one}
}
