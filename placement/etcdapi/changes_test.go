package etcdapi

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// A file that change sets have advanced is the file that is written of the later state, whatever
// was done in between: writes, deletions, leases, users, compactions. If a compaction has removed
// what a change set should have, it is refused, and so is a sequence with a hole.
func TestAdvancedFileIsFresh(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := &changing{t: t, lone: newLone(t), Rand: rand.New(rand.NewPCG(seed, 9)), dir: t.TempDir()}
			h.rebase()
			compacted := 0
			for range 12 {
				h.random(h.IntN(40))
				if h.IntN(3) == 0 {
					h.compact(h.Revision() - h.Uint64N(min(h.Revision(), 60)))
				}
				if h.changes() {
					h.compare()
					continue
				}
				compacted++
				h.rebase()
			}
			if len(h.sets) > 2 && h.revisions[0] != h.revisions[len(h.revisions)-1] {
				h.missing()
			}
			t.Logf("%d revisions, %d times compacted", h.Revision(), compacted)
		})
	}
}

// changing is a store with a history of changes, and what was copied of it.
type changing struct {
	*lone
	*rand.Rand
	t    *testing.T
	dir  string
	base string
	sets [][]byte
	// revisions are those of the base, and of each change set.
	revisions []uint64
}

func (h *changing) do(c *storepb.Command) {
	h.t.Helper()
	if _, err := h.Execute(h.t.Context(), c); err != nil && !errors.Is(err, store.ErrLeaseNotFound) &&
		!errors.Is(err, store.ErrLeaseExists) && !errors.Is(err, store.ErrCompacted) {
		h.t.Fatal(err)
	}
}

func (h *changing) random(n int) {
	key := func() []byte { return fmt.Append(nil, "k", h.IntN(30)) }
	for range n {
		switch h.IntN(9) {
		case 0:
			h.do(store.Grant(1+h.Int64N(5), 1000*(1+h.Uint64N(90))))
		case 1:
			h.do(store.Revoke(1 + h.Int64N(5)))
		case 2, 3:
			h.do(store.If(nil, []*storepb.Op{store.Delete(key())}, nil))
		case 4:
			h.do(store.If(nil, []*storepb.Op{store.PutLeased(key(), []byte("leased"), 1+h.Int64N(5))}, nil))
		case 5:
			h.auth()
		case 6: // several changes at one revision
			i := h.IntN(20)
			h.do(store.If(nil, []*storepb.Op{store.Put(fmt.Append(nil, "k", i), key()),
				store.Delete(fmt.Append(nil, "k", i+1)), store.Put(fmt.Append(nil, "k", i+2), nil)}, nil))
		default:
			h.do(store.If(nil, []*storepb.Op{store.Put(key(), key())}, nil))
		}
	}
}

// auth changes users or roles.
func (h *changing) auth() {
	c := &storepb.AuthChange{}
	name := fmt.Sprint("u", h.IntN(4))
	switch h.IntN(5) {
	case 0:
		c.Change = &storepb.AuthChange_UserAdd{UserAdd: &storepb.UserAdd{Name: name,
			Hash: []byte("hash of " + name)}}
	case 1:
		c.Change = &storepb.AuthChange_UserDelete{UserDelete: &storepb.UserDelete{Name: name}}
	case 2:
		c.Change = &storepb.AuthChange_RoleAdd{RoleAdd: &storepb.RoleAdd{Name: "role"}}
	case 3:
		c.Change = &storepb.AuthChange_GrantKeyspace{GrantKeyspace: &storepb.KeyspaceGrant{Role: "role",
			Permission: &storepb.KeyspacePermission{Keyspace: 1 + h.Uint64N(3), Rights: 3,
				RangeEnd: []byte{0}}}}
	case 4:
		c.Change = &storepb.AuthChange_GrantPermission{GrantPermission: &storepb.RolePermission{
			Role: "role", Permission: &storepb.Permission{Type: storepb.Permission_READWRITE,
				Key: fmt.Append(nil, h.IntN(9))}}}
	}
	_, _ = h.Execute(h.t.Context(), store.ChangeAuth(nil, c)) // it may be there, or not be
}

func (h *changing) compact(revision uint64) {
	if revision > h.Compacted() {
		h.do(store.Compact(revision))
	}
}

func (h *changing) export() *store.Export {
	h.t.Helper()
	e, err := h.Export()
	if err != nil {
		h.t.Fatal(err)
	}
	return e
}

// rebase makes a whole copy, with which change sets begin.
func (h *changing) rebase() {
	h.t.Helper()
	e := h.export()
	defer e.Close()
	path, err := etcdfile.Write(h.t.Context(), h.dir, e)
	if err != nil {
		h.t.Fatal(err)
	}
	h.base, h.sets, h.revisions = path, nil, []uint64{e.Revision}
}

// changes makes a change set; false: the store does not have all changes any more.
func (h *changing) changes() bool {
	h.t.Helper()
	e := h.export()
	defer e.Close()
	after := h.revisions[len(h.revisions)-1]
	if overlap := h.IntN(4); overlap > 0 && len(h.revisions) > 1 && e.Compacted < after {
		after = max(h.revisions[len(h.revisions)-2], e.Compacted) // some come twice
	}
	var b bytes.Buffer
	set, err := etcdfile.WriteChanges(h.t.Context(), &b, e, after)
	if e.Compacted > after+1 {
		var compacted *store.CompactedError
		if !errors.As(err, &compacted) || compacted.Revision != e.Compacted {
			h.t.Fatalf("changes after %d of a store that is compacted at %d: %v", after, e.Compacted, err)
		}
		return false
	}
	if err != nil || set.After != after || set.Revision != e.Revision {
		h.t.Fatal(set, err)
	}
	if _, err := etcdfile.WriteChanges(h.t.Context(), io.Discard, e,
		e.Revision+1); !errors.Is(err, store.ErrFutureRevision) {
		h.t.Errorf("changes after the store's revision: %v", err)
	}
	h.sets, h.revisions = append(h.sets, b.Bytes()), append(h.revisions, set.Revision)
	return true
}

// readers hands change sets over.
func readers(sets [][]byte) iter.Seq2[io.Reader, error] {
	return func(yield func(io.Reader, error) bool) {
		for _, set := range sets {
			if !yield(bytes.NewReader(set), nil) {
				return
			}
		}
	}
}

// compare compares the advanced file with a fresh one.
func (h *changing) compare() {
	h.t.Helper()
	advanced, err := etcdfile.Advance(h.t.Context(), h.dir, h.base, readers(h.sets))
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = etcdfile.Remove(advanced) }()
	e := h.export()
	defer e.Close()
	fresh, err := etcdfile.Write(h.t.Context(), h.dir, e)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = etcdfile.Remove(fresh) }()
	got, want := recordsOf(h.t, advanced, e.Compacted), recordsOf(h.t, fresh, e.Compacted)
	if !slices.Equal(got, want) {
		for _, r := range want {
			if !slices.Contains(got, r) {
				h.t.Errorf("the advanced file does not have %s", r)
			}
		}
		for _, r := range got {
			if !slices.Contains(want, r) {
				h.t.Errorf("the advanced file has %s", r)
			}
		}
		h.t.Fatalf("revisions %v, compacted %d", h.revisions, e.Compacted)
	}
	file, err := etcdfile.Open(h.t.Context(), advanced, etcdfile.Options{WithoutSum: true})
	if err != nil || file.Revision != e.Revision {
		h.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		h.t.Error(err)
	}
}

// missing leaves one change set out, damages others, and shortens them.
func (h *changing) missing() {
	h.t.Helper()
	try := func(sets [][]byte) error {
		path, err := etcdfile.Advance(h.t.Context(), h.t.TempDir(), h.base, readers(sets))
		if err == nil {
			_ = etcdfile.Remove(path)
		}
		return err
	}
	for i := range len(h.sets) - 1 {
		after := binary.BigEndian.Uint64(h.sets[i+1][len("tidemark changes 1\n"):])
		if after <= h.revisions[i] {
			continue // the next one has what it has
		}
		if err := try(slices.Delete(slices.Clone(h.sets), i, i+1)); !errors.Is(err, etcdfile.ErrHole) {
			h.t.Errorf("without change set %d of %v: %v", i, h.revisions, err)
		}
	}
	last := h.sets[len(h.sets)-1]
	for range 50 {
		short := append(slices.Clone(h.sets[:len(h.sets)-1]), last[:h.IntN(len(last))])
		if err := try(short); !errors.Is(err, etcdfile.ErrChanges) {
			h.t.Fatalf("a short change set: %v", err)
		}
	}
	for range 200 { // it ends, with an error or without
		damaged := bytes.Clone(last)
		damaged[h.IntN(len(damaged))] ^= 1 << h.IntN(8)
		_ = try(append(slices.Clone(h.sets[:len(h.sets)-1]), damaged))
	}
	if left, err := os.ReadDir(h.t.TempDir()); err != nil || len(left) > 0 {
		h.t.Errorf("left over: %v, %v", left, err)
	}
}

// recordsOf are all records of a file, as text. Numbers of changes within their revisions are left
// out below the compaction: a fresh file does not know them.
func recordsOf(t *testing.T, path string, compacted uint64) (all []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	type version struct {
		revision uint64
		text     string
	}
	var versions []version
	if err := db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
			return b.ForEach(func(key, value []byte) error {
				if string(name) != "key" {
					all = append(all, fmt.Sprintf("%s %q %q", name, key, value))
					return nil
				}
				v := version{revision: binary.BigEndian.Uint64(key), text: fmt.Sprintf("%q %q", key, value)}
				if v.revision < compacted {
					v.text = fmt.Sprintf("%d %q %q", v.revision, key[17:], value)
				}
				versions = append(versions, v)
				return nil
			})
		})
	}); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(versions, func(a, b version) int {
		return cmp.Or(cmp.Compare(a.revision, b.revision), cmp.Compare(a.text, b.text))
	})
	for _, v := range versions {
		all = append(all, v.text)
	}
	return all
}
