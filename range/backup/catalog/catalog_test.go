package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/export"
	"github.com/tidemarkdb/tidemark/range/backup/job"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/backup/targettest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

var began = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// history is a cluster of one keyspace: all versions of its rows, the newest first.
type history struct {
	store    *targettest.Memory
	clock    int64
	versions map[string][]archive.Record
	splits   []string
	backups  uint32
	// recipients can read the backups; none: everybody.
	recipients archive.Recipients
}

func newHistory() *history {
	return &history{store: targettest.NewMemory(), clock: 1000,
		versions: make(map[string][]archive.Record)}
}

// write adds a version.
func (h *history) write(key string, r archive.Record) {
	h.clock++
	r.Key, r.Timestamp = []byte(key), hlc.Timestamp{Wall: h.clock}
	h.versions[key] = append([]archive.Record{r}, h.versions[key]...)
}

// at is what could be read at a moment.
func (h *history) at(moment int64) map[string]string {
	state := make(map[string]string)
	for key, versions := range h.versions {
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

// Page implements export.Source.
func (h *history) Page(_ context.Context, q export.Query) (export.Page, error) {
	p := export.Page{Over: true}
	for _, key := range slices.Sorted(maps.Keys(h.versions)) {
		if !q.Span.Contains([]byte(key)) {
			continue
		}
		for _, r := range h.versions[key] {
			if q.At.Less(r.Timestamp) {
				continue
			}
			full := q.After.IsZero()
			if full && r.Kind == archive.Value && (r.Expiry == 0 || r.Expiry > q.At.Wall) ||
				!full && q.After.Less(r.Timestamp) {
				p.Records = append(p.Records, r)
			}
			break
		}
	}
	return p, nil
}

func (h *history) Moment(context.Context) (hlc.Timestamp, job.Coordination, error) {
	h.clock++
	return hlc.Timestamp{Wall: h.clock}, coordination{}, nil
}

// coordination is a coordination store that never changes.
type coordination struct{}

func (coordination) Revision() int64 { return 5 }

func (coordination) Copy(_ context.Context, part func([]byte) error) error {
	return part([]byte("coordination"))
}

func (coordination) Changes(context.Context, int64, func([]byte) error) (string, error) {
	return "", job.ErrTooOld
}

func (coordination) Close() {}

func (h *history) Describe(context.Context) (*job.Description, error) {
	parts := []manifest.Partition{{Nodes: []keys.NodeID{1}}}
	for _, s := range h.splits {
		parts = append(parts, manifest.Partition{Start: []byte(s), Nodes: []keys.NodeID{1}})
	}
	return &job.Description{Cluster: "c1", Keyspaces: []job.Keyspace{{
		Keyspace:   manifest.Keyspace{ID: 7, Name: "fruit", Definition: []byte(`{}`)},
		Partitions: parts}}}, nil
}

func (h *history) Protect(context.Context, string, string, hlc.Timestamp, time.Duration) error {
	return nil
}

func (h *history) Keep(context.Context, string, string, hlc.Timestamp, time.Duration) error {
	return nil
}

func (h *history) Unprotect(context.Context, string, string) error { return nil }

func (h *history) Nodes(context.Context) ([]keys.NodeID, error) { return []keys.NodeID{1}, nil }

func (h *history) Export(ctx context.Context, _ keys.NodeID,
	task *job.Task) (*manifest.Done, error) {
	w, err := export.NewWorker(export.Config{Source: h, Target: h.store, Random: rand.Uint64,
		PieceBytes: 40, Recipients: h.recipients})
	if err != nil {
		return nil, err
	}
	return w.Write(ctx, export.Unit{Backup: task.Plan.ID, Kind: task.Plan.Kind, Number: task.Number,
		Keyspace: task.Keyspace.Name, Query: export.Query{
			Keyspace: keys.KeyspaceID(task.Keyspace.ID), Span: task.Unit.Span(),
			After: task.Keyspace.After.Timestamp, At: task.Plan.At.Timestamp}})
}

// backup makes a backup that continues another one; empty: a full one.
func (h *history) backup(t interface{ Fatalf(string, ...any) }, parent string) *manifest.Head {
	h.backups++
	s := job.Spec{ID: manifest.NewID(began, h.backups), Kind: manifest.Full, Parent: parent,
		Keep: time.Hour, Began: began, Recipients: h.recipients}
	if parent != "" {
		s.Kind = manifest.Incremental
	}
	head, err := job.Run(context.Background(), s, job.Config{Cluster: h, Target: h.store,
		Random: rand.Uint64, Now: func() time.Time { return began },
		Limits: manifest.UnitLimits{Bytes: 1, Partitions: 1}})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return head
}

// restored is what a chain has.
func restored(t interface{ Fatalf(string, ...any) }, c *catalog.Catalog, id string,
	span keys.Span) map[string]string {
	point, err := c.Point(context.Background(), id, "", hlc.Timestamp{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	state := make(map[string]string)
	last := ""
	for r, err := range c.Records(context.Background(), point, &point.Keyspaces[0], span) {
		if err != nil {
			t.Fatalf("%v", err)
		}
		if string(r.Key) <= last {
			t.Fatalf("%q comes after %q", r.Key, last)
		}
		last = string(r.Key)
		state[last] = fmt.Sprintf("%s until %d", r.Value, r.Expiry)
	}
	return state
}

// Whatever is written between the backups of a chain, and however the keyspace is split, the chain
// has what could be read at the moment of each backup.
func TestChainsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory()
		c := catalog.New(h.store, nil)
		type made struct {
			head *manifest.Head
			want map[string]string
		}
		var all []made
		keyOf := rapid.StringMatching(`[a-e]{1,2}`)
		for range rapid.IntRange(1, 5).Draw(t, "backups") {
			for range rapid.IntRange(0, 12).Draw(t, "writes") {
				key := keyOf.Draw(t, "key")
				switch rapid.IntRange(0, 3).Draw(t, "kind") {
				case 0:
					h.write(key, archive.Record{Kind: archive.Tombstone})
				case 1:
					h.write(key, archive.Record{Value: []byte("expires"),
						Expiry: h.clock + rapid.Int64Range(1, 20).Draw(t, "ttl")})
				default:
					h.write(key, archive.Record{Value: fmt.Appendf(nil, "v%d", h.clock)})
				}
			}
			h.splits = rapid.SliceOfNDistinct(keyOf, 0, 3, rapid.ID[string]).Draw(t, "splits")
			slices.Sort(h.splits)
			parent := ""
			if len(all) > 0 && rapid.IntRange(0, 3).Draw(t, "full") > 0 {
				parent = all[rapid.IntRange(0, len(all)-1).Draw(t, "parent")].head.ID
			}
			head := h.backup(t, parent)
			all = append(all, made{head, h.at(head.At.Wall)})
		}
		for _, b := range all {
			if got := restored(t, c, b.head.ID, keys.Span{}); !maps.Equal(got, b.want) {
				t.Fatalf("%s has %v, want %v", b.head.ID, got, b.want)
			}
		}
		found, err := c.Verify(context.Background(), "", nil)
		if err != nil || len(found.Problems) > 0 || len(found.Backups) != len(all) {
			t.Fatalf("%v: %+v", err, found)
		}
	})
}

// chain makes a full backup and two that continue it.
func chain(t *testing.T) (*history, *catalog.Catalog, []*manifest.Head) {
	h := newHistory()
	heads := []*manifest.Head{}
	parent := ""
	for round := range 3 {
		for i := range 10 {
			h.write(fmt.Sprintf("k%02d", i*(round+1)), archive.Record{
				Value: fmt.Appendf(nil, "round %d", round)})
		}
		h.splits = []string{"k05", "k15"}[:round]
		heads = append(heads, h.backup(t, parent))
		parent = heads[round].ID
	}
	return h, catalog.New(h.store, nil), heads
}

func TestList(t *testing.T) {
	h, c, heads := chain(t)
	h.store.Set(manifest.PlanName(manifest.NewID(began, 99)), []byte("plan"))
	h.store.Set("other/object", []byte("x"))
	contents, err := c.List(t.Context())
	if err != nil || len(contents.Complete) != 3 || len(contents.Unfinished) != 1 ||
		contents.Unfinished[0].Objects != 1 || contents.Unfinished[0].Bytes != 4 {
		t.Fatalf("%v: %+v", err, contents)
	}
	if sorted := contents.Complete.Sorted(); sorted[2].ID != heads[2].ID || sorted[2].Parent !=
		heads[1].ID {
		t.Errorf("%+v", sorted)
	}
	part := restored(t, c, heads[2].ID, keys.Span{Start: []byte("k02"), End: []byte("k05")})
	if len(part) != 3 {
		t.Errorf("a part of the keyspace: %v", part)
	}
	if _, err := c.Layers(t.Context(), manifest.NewID(began, 77)); !errors.Is(err,
		target.ErrNotFound) {
		t.Error(err)
	}
}

// A backup that others continue is not deleted; what is deleted leaves nothing over.
func TestDelete(t *testing.T) {
	h, c, heads := chain(t)
	if _, err := c.Delete(t.Context(), heads[1].ID); !errors.Is(err, catalog.ErrNeeded) {
		t.Error(err)
	}
	for _, head := range slices.Backward(heads) {
		n, err := c.Delete(t.Context(), head.ID)
		if err != nil || n < 5 {
			t.Errorf("%d objects: %v", n, err)
		}
	}
	if left := h.store.Objects(); len(left) > 0 {
		t.Errorf("left over: %v", slices.Collect(maps.Keys(left)))
	}
}

// A backup with a damaged head is a problem of its own, and of those that continue it.
func TestDamagedHead(t *testing.T) {
	h, c, heads := chain(t)
	other := h.backup(t, "")
	for i, damaged := range []*manifest.Head{heads[2], other} {
		name := manifest.HeadName(damaged.ID)
		spoilt := bytes.Clone(h.store.Objects()[name])
		spoilt[len(spoilt)/2] ^= 1
		h.store.Set(name, spoilt)
		contents, err := c.List(t.Context())
		if err != nil || len(contents.Complete) != 3-i || !errors.Is(contents.Damaged[damaged.ID],
			archive.ErrCorrupt) || len(contents.Unfinished) > 0 {
			t.Fatalf("%v: %+v", err, contents)
		}
		for _, id := range []string{"", damaged.ID} {
			found, err := c.Verify(t.Context(), id, nil)
			if err != nil || len(found.Problems) != 1 || !strings.Contains(found.Problems[0], damaged.ID) ||
				id == "" && len(found.Backups) != 3-i {
				t.Errorf("verifying %q: %v: %+v", id, err, found)
			}
		}
		if n, err := c.Delete(t.Context(), damaged.ID); err != nil || n < 5 {
			t.Errorf("%d objects: %v", n, err)
		}
	}
	if found, err := c.Verify(t.Context(), "", nil); err != nil || len(found.Problems) > 0 {
		t.Errorf("%v: %+v", err, found)
	}
}

// Nobody knows what a damaged backup continues, so that old backups stay while another continues it.
func TestExpireDamaged(t *testing.T) {
	h, c, heads := chain(t)
	name := manifest.HeadName(heads[1].ID)
	whole := h.store.Objects()[name]
	spoilt := bytes.Clone(whole)
	spoilt[len(spoilt)/2] ^= 1
	h.store.Set(name, spoilt)
	if e, err := c.Expire(t.Context(), heads[0].Cluster, "", catalog.Newest); err != nil ||
		len(e.Backups) > 0 {
		t.Errorf("%v: %+v", err, e)
	}
	h.backup(t, "")
	if e, err := c.Expire(t.Context(), heads[0].Cluster, "", catalog.Newest); err != nil ||
		len(e.Backups) != 2 {
		t.Errorf("%v: %+v", err, e)
	}
}

// A backup of whose chain another one is missing is no base: what is before it stays, and moments
// after it are restored from an older backup.
func TestExpireWithAHole(t *testing.T) {
	h, c, heads := chain(t)
	if err := h.store.Delete(t.Context(), manifest.HeadName(heads[1].ID)); err != nil {
		t.Fatal(err)
	}
	if e, err := c.Expire(t.Context(), heads[0].Cluster, "", catalog.Newest); err != nil ||
		len(e.Backups) > 0 {
		t.Errorf("%v: %+v", err, e)
	}
	if _, err := c.Chain(t.Context(), heads[0].ID); err != nil {
		t.Errorf("the only whole backup: %v", err)
	}
	if _, err := c.Chain(t.Context(), heads[2].ID); !errors.Is(err, manifest.ErrBroken) {
		t.Errorf("a chain with a hole: %v", err)
	}
	h.backup(t, "")
	if e, err := c.Expire(t.Context(), heads[0].Cluster, "", catalog.Newest); err != nil ||
		len(e.Backups) != 2 {
		t.Errorf("%v: %+v", err, e)
	}
}

// crashed is a target whose user crashes before anything is deleted.
type crashed struct{ target.Target }

func (crashed) Delete(context.Context, string) error { return errors.New("crashed") }

// What a crash leaves of the probe of the target goes with the backup.
func TestDeleteFindsProbes(t *testing.T) {
	h, c, _ := chain(t)
	before := len(h.store.Objects())
	id := manifest.NewID(began, 99)
	if err := target.Probe(t.Context(), crashed{h.store}, manifest.ProbePrefix(id)); err == nil {
		t.Fatal("the probe has not crashed")
	}
	contents, err := c.List(t.Context())
	if err != nil || len(contents.Unfinished) != 1 || contents.Unfinished[0].ID != id {
		t.Fatalf("%v: %+v", err, contents)
	}
	if n, err := c.Delete(t.Context(), id); err != nil || n != 1 ||
		len(h.store.Objects()) != before {
		t.Errorf("%d objects removed: %v", n, err)
	}
}

// A backup that cannot be decrypted is verified by its checksums, whatever a crash has left of the
// trials of the target.
func TestVerifySealed(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory()
	if h.recipients, err = archive.ParseRecipients(id.Recipient().String()); err != nil {
		t.Fatal(err)
	}
	h.write("k01", archive.Record{Kind: archive.Value, Value: []byte("v")})
	head := h.backup(t, "")
	h.store.Set(manifest.CheckName(head.ID), []byte("check"))
	h.store.Set(manifest.ProbePrefix(head.ID)+"x", []byte("probe"))
	c := catalog.New(h.store, nil)
	found, err := c.Verify(t.Context(), "", nil)
	if err != nil || !found.Sealed || len(found.Problems) > 0 {
		t.Errorf("%v: %+v", err, found)
	}
	for name, data := range h.store.Objects() {
		if manifest.IsTrial(name) || manifest.IsHead(name) {
			continue
		}
		changed := bytes.Clone(data)
		changed[len(changed)/2] ^= 1
		h.store.Set(name, changed)
		if found, err := c.Verify(t.Context(), "", nil); err != nil || len(found.Problems) == 0 {
			t.Errorf("%s was changed: %v, %+v", name, err, found)
		}
		h.store.Set(name, data)
	}
}

// A backup that cannot be decrypted does not keep others from being verified: the manifest of a
// parent is changed to one that does not lead to its child.
func TestVerifyAfterSealed(t *testing.T) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	h := newHistory()
	if h.recipients, err = archive.ParseRecipients(id.Recipient().String()); err != nil {
		t.Fatal(err)
	}
	h.backup(t, "")
	h.recipients = nil
	full := h.backup(t, "")
	child := h.backup(t, full.ID)
	name := manifest.ManifestName(child.ID)
	data, err := archive.Unseal(h.store.Objects()[name], manifest.ManifestKind, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := manifest.DecodeManifest(data)
	if err != nil {
		t.Fatal(err)
	}
	m.Head.After.Wall--
	m.Keyspaces[0].After = m.Head.After
	if data, err = manifest.Encode(m); err != nil {
		t.Fatal(err)
	}
	sealed, _, err := archive.Seal(manifest.ManifestKind, data, archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h.store.Set(name, sealed)
	found, err := catalog.New(h.store, nil).Verify(t.Context(), "", nil)
	if err != nil || !found.Sealed || len(found.Problems) != 1 {
		t.Errorf("%v: %+v", err, found)
	}
}

// Verify notices whatever is changed, cut or removed, in every object of a chain.
func TestVerifyNoticesEverything(t *testing.T) {
	h, c, heads := chain(t)
	for name, data := range h.store.Objects() {
		_, rest, _ := manifest.IDOf(name)
		if rest == "plan" || strings.HasPrefix(rest, "unit/") {
			continue // only the job reads them
		}
		at := rand.IntN(len(data))
		changed := bytes.Clone(data)
		changed[at] ^= 1 << rand.IntN(8)
		for what, spoilt := range map[string][]byte{fmt.Sprintf("byte %d changed", at): changed,
			"cut": data[:at], "removed": nil} {
			h.store.Set(name, spoilt)
			found, err := c.Verify(t.Context(), heads[2].ID, nil)
			if err == nil && len(found.Problems) == 0 {
				t.Errorf("%s with %s is not noticed", name, what)
			}
		}
		h.store.Set(name, data)
	}
	found, err := c.Verify(t.Context(), "", nil)
	if err != nil || len(found.Problems) > 0 || len(found.Backups) != 3 || found.Totals.Records == 0 {
		t.Errorf("%v: %+v", err, found)
	}
}

// A piece of another backup in the place of one is noticed, though its own sums are right.
func TestPieceOfAnotherBackup(t *testing.T) {
	h, c, heads := chain(t)
	ours, err := c.Manifest(t.Context(), heads[2].ID)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := c.Manifest(t.Context(), heads[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	p, q := &ours.Done[0].Pieces[0], &theirs.Done[0].Pieces[0]
	h.store.Set(p.Name, h.store.Objects()[q.Name])
	p.Size, p.Sum, p.Records = q.Size, q.Sum, q.Records
	if err := c.Piece(t.Context(), ours, p, new(archive.Reader)); !errors.Is(err, archive.ErrCorrupt) {
		t.Error(err)
	}
}
