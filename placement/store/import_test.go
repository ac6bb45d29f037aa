package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/apply"
	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
)

// stateOf is what another store has, as an import brings it in.
func stateOf(t fataler, s *Store) (uint64, []*storepb.ImportedLease, []*storepb.ImportedVersion) {
	t.Helper()
	e, err := s.Export()
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	exported, err := e.Leases()
	if err != nil {
		t.Fatal(err)
	}
	var leases []*storepb.ImportedLease
	for _, l := range exported {
		leases = append(leases, &storepb.ImportedLease{Id: l.ID, TtlMillis: l.TTLMillis,
			LeftMillis: l.LeftMillis})
	}
	newest := map[string]*storepb.ImportedVersion{}
	if err := e.Changes(context.Background(), func(c Change) error {
		newest[string(c.KV.Key)] = &storepb.ImportedVersion{Key: c.KV.Key, Value: c.KV.Value,
			CreateRevision: c.KV.CreateRevision, ModRevision: c.KV.ModRevision, Version: c.KV.Version,
			Lease: c.KV.Lease, Number: c.Number}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	var versions []*storepb.ImportedVersion
	for _, v := range newest {
		if v.Version > 0 || v.ModRevision == e.Revision {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b *storepb.ImportedVersion) int {
		return bytes.Compare(a.Key, b.Key)
	})
	return e.Revision, leases, versions
}

// history are the tables that an import fills.
func (m *member) history() []string {
	return slices.DeleteFunc(m.dump(), func(line string) bool {
		table := fmt.Sprintf("%q", m.store.Layout.Prefix())
		rest := strings.TrimPrefix(line, strings.TrimSuffix(table, `"`))
		return rest == line || !strings.ContainsAny(rest[:1], "eklL")
	})
}

// An import leaves exactly what the other store has once it is compacted at its revision, on every
// member, whatever is repeated, and also if members start anew on the way.
func TestImportIsACompactedCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := newCore(t, 1, nil)
		defer from.close()
		from.elect(from.members[0])
		source := from.members[0].store
		key := func() []byte { return []byte(fmt.Sprint("k", rapid.IntRange(0, 15).Draw(t, "key"))) }
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			lease := int64(rapid.IntRange(-2, 4).Draw(t, "lease"))
			var cmd *storepb.Command
			switch rapid.IntRange(0, 6).Draw(t, "command") {
			case 0:
				cmd = Grant(max(lease, 1), 100_000)
			case 1:
				cmd = Revoke(lease)
			case 2:
				cmd = writes(deletePrefix([]byte("k1")), Put([]byte("a"), key()))
			case 3:
				cmd = checkpoint(&storepb.LeaseCheckpoint_Lease{Id: lease, LeftMillis: 99_000})
			case 4:
				cmd = writes(Delete(key()))
			default:
				cmd = writes(PutLeased(key(), []byte("v"), max(lease, 0)))
			}
			_, _ = source.Do(context.Background(), cmd)
		}
		revision, leases, versions := stateOf(t, source)

		to := newCore(t, 2, nil)
		defer to.close()
		to.elect(to.members[0])
		store := func() *Store { return to.members[0].store }
		if rapid.Bool().Draw(t, "used before") && revision > 4 {
			put(t, store(), "k1", "old")
			do(t, store(), writes(Delete([]byte("k1"))))
		}
		step := uint64(0)
		for end := false; !end; {
			n := rapid.IntRange(0, 7).Draw(t, "size")
			m := &storepb.Import{Id: 7, Step: step + 1, Revision: revision, Source: []byte("x")}
			if m.Leases = leases[:min(n, len(leases))]; len(m.Leases) == 0 {
				m.Versions = versions[:min(n, len(versions))]
			}
			leases, versions = leases[len(m.Leases):], versions[len(m.Versions):]
			end = len(leases)+len(versions) == 0 && rapid.Bool().Draw(t, "end")
			m.End = end
			step++
			for range rapid.IntRange(1, 2).Draw(t, "times") {
				do(t, store(), Import(m))
			}
			if end {
				break
			}
			if _, err := store().Stale().Get([]byte("a")); !errors.Is(err, command.ErrImporting) {
				t.Fatal("read: ", err)
			}
			if _, err := store().Do(context.Background(), writes(Put([]byte("a"), nil))); !errors.Is(
				err, command.ErrImporting) {
				t.Fatal("put: ", err)
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				reopen(t, to.members[0])
			}
		}
		if revision > 1 && source.Compacted() < revision {
			do(t, source, Compact(revision))
		}
		to.members[1].catchUp()
		for _, m := range to.members {
			same(t, m.history(), from.members[0].history())
		}
		if r := put(t, store(), "k1", "new"); r != revision+1 {
			t.Fatalf("revision %d after one that was imported at %d", r, revision)
		}
		for _, id := range source.Leases() {
			want, _ := source.Lease(id)
			got, err := store().Lease(id)
			if err != nil || got.Term != want.Term {
				t.Fatal(got, want, err)
			}
		}
	})
}

func importOf(step uint64, versions ...*storepb.ImportedVersion) *storepb.Import {
	return &storepb.Import{Id: 5, Step: step, Revision: 9, Versions: versions}
}

func version(key string, created, modified, version uint64) *storepb.ImportedVersion {
	return &storepb.ImportedVersion{Key: []byte(key), CreateRevision: created, ModRevision: modified,
		Version: version}
}

// What cannot be a state of a store is refused, and has no effect.
func TestImportRefuses(t *testing.T) {
	c, s := one(t, nil)
	do(t, s, Import(importOf(1, version("b", 2, 3, 2))))
	before := c.members[0].dump()
	leased := version("c", 2, 2, 1)
	leased.Lease = 1
	for name, m := range map[string]*storepb.Import{
		"another one": {Id: 6, Step: 1, Revision: 9}, "a step too far": importOf(3),
		"not ascending": importOf(2, version("c", 2, 2, 1), version("c", 2, 3, 2)),
		"a key again":   importOf(2, version("b", 2, 2, 1)),
		"too new":       importOf(2, version("c", 2, 10, 1)),
		"made later":    importOf(2, version("c", 4, 3, 1)),
		"no lease":      importOf(2, leased),
		"deleted":       importOf(2, version("c", 0, 8, 0)),
		"twice": importOf(2, version("c", 2, 9, 2), version("d", 2, 9, 2),
			version("e", 2, 9, 2)),
		"lease": {Id: 5, Step: 2, Leases: []*storepb.ImportedLease{{Id: 1}}},
		"leases": {Id: 5, Step: 2, Leases: []*storepb.ImportedLease{{Id: 2, TtlMillis: 1},
			{Id: 1, TtlMillis: 1}}},
		"a hole": {Id: 5, Step: 2, End: true, Versions: []*storepb.ImportedVersion{
			{Key: []byte("c"), CreateRevision: 9, ModRevision: 9, Version: 1, Number: 1}}},
		"no step": {Id: 5},
	} {
		if _, err := s.Do(context.Background(), Import(m)); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	meta := func(line string) bool { return strings.Contains(line, "applied") }
	same(t, slices.DeleteFunc(c.members[0].dump(), meta), slices.DeleteFunc(before, meta))
	do(t, s, Import(&storepb.Import{Id: 5, Abandon: true}))
	if put(t, s, "a", "") != 2 {
		t.Error("a store whose import was given up is not as before")
	}
	for _, m := range []*storepb.Import{importOf(1), {Id: 5, Abandon: true}, importOf(2)} {
		if _, err := s.Do(context.Background(), Import(m)); err == nil {
			t.Errorf("%v is taken", m)
		}
	}
	do(t, s, writes(Delete([]byte("a"))))
	back := Import(&storepb.Import{Id: 5, Step: 1, Revision: 4})
	if _, err := s.Do(context.Background(), back); !errors.Is(err, command.ErrNotEmpty) {
		t.Error("revisions go back: ", err)
	}
	do(t, s, Import(importOf(1)))
	do(t, s, Import(&storepb.Import{Id: 5, Step: 2, End: true}))
	if s.Revision() != 9 || s.Compacted() != 9 {
		t.Error(s.Revision(), s.Compacted())
	}
}

// Leases do not run out while they are imported, and have their terms from the end on. Watches that
// are open end, and are told why.
func TestImportLeasesAndWatches(t *testing.T) {
	var clock atomic.Int64
	_, s := one(t, func(c *Config) { c.Monotonic = clock.Load })
	w, err := s.Watch([]byte("a"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	do(t, s, Import(&storepb.Import{Id: 5, Step: 1, Revision: 9,
		Leases: []*storepb.ImportedLease{{Id: 1, TtlMillis: 1000}}}))
	clock.Add(int64(time.Hour))
	if _, err := s.Renew(context.Background(), 1); !errors.Is(err, command.ErrImporting) {
		t.Error(err)
	}
	if _, err := s.Export(); !errors.Is(err, command.ErrImporting) {
		t.Error(err)
	}
	state, err := s.ImportState(context.Background())
	if err != nil || state.ID != 5 || state.Leases != 1 || state.LastLease != 1 || state.Done {
		t.Error(state, err)
	}
	do(t, s, Import(&storepb.Import{Id: 5, Step: 2, End: true}))
	if _, left, ok := s.lessor.Remaining(1); !ok || left != time.Second {
		t.Error(left, ok)
	}
	if _, err := w.Next(context.Background()); !errors.Is(err, command.ErrCompacted) {
		t.Error(err)
	}
	if _, err := s.Renew(context.Background(), 1); err != nil {
		t.Error(err)
	}
}

// A count beside the end of an import is of what was imported, also if a put in the same Apply has
// made a revision that is known to be the newest.
func TestCountBesideTheEndOfAnImport(t *testing.T) {
	_, s := one(t, nil)
	const had, imported = 2000, 500
	var puts, deletes []*storepb.Op
	for k := range had {
		puts = append(puts, Put(fmt.Appendf(nil, "k%05d", k), nil))
		deletes = append(deletes, Delete(fmt.Appendf(nil, "k%05d", k)))
	}
	q := &storepb.Range{Key: []byte("k"), RangeEnd: []byte("l"), CountOnly: true}
	for _, ops := range [][]*storepb.Op{puts, deletes} {
		do(t, s, writes(ops...))
		if _, err := s.Stale().Range(q); err != nil {
			t.Fatal(err)
		}
	}
	m := &storepb.Import{Id: 7, Step: 1, Revision: 1000, End: true}
	for k := range imported {
		m.Versions = append(m.Versions, &storepb.ImportedVersion{Key: fmt.Appendf(nil, "k%05d", k),
			ModRevision: 5, CreateRevision: 5, Version: 1})
	}
	index, term := s.Applied()
	a, err := s.apply(term, func(a *apply.Application) error {
		for _, cmd := range []*storepb.Command{Import(m), writes(Put([]byte("k9"), nil))} {
			data, err := command.Encode(cmd)
			if err != nil {
				return err
			}
			index++
			if err := a.Entry(group.Entry{Index: index, Term: term, Data: data}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count := func(when string) {
		t.Helper()
		read := writes(&storepb.Op{Op: &storepb.Op_Range{Range: q}})
		result, err := s.ReadTxn(t.Context(), read.GetTxn())
		if err != nil {
			t.Fatal(err)
		}
		if n := result.Txn.Results[0].GetRange().Count; n != imported+1 {
			t.Errorf("%s there are %d keys at revision %d, want %d", when, n, result.Revision, imported+1)
		}
	}
	count("before it is published")
	s.publish(&a.Effects, term)
	count("afterwards")
}
