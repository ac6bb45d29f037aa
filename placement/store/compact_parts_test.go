package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/compaction"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
)

// A compaction in parts looks the same as one at once, at each moment, to all that read, hash or
// watch, and comes to the same in the end; also if another one comes before it has ended, or the
// member is started again.
func TestCompactionInPartsIsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts, whole := newCore(t, 1, nil), newCore(t, 1, nil)
		defer parts.close()
		defer whole.close()
		for _, c := range []*core{parts, whole} {
			c.elect(c.members[0])
		}
		name := rapid.StringMatching(`[a-d]{1,2}`)
		apply := func(c *core, cmd *storepb.Command) storepb.Code {
			result, _ := c.members[0].store.DoOwn(context.Background(), cmd)
			return result.GetCode()
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			a, b := parts.members[0].store, whole.members[0].store
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1, 2:
				ops := map[string]*storepb.Op{}
				for _, key := range rapid.SliceOfN(name, 1, 8).Draw(t, "keys") {
					ops[key] = Put([]byte(key), []byte("v"))
					if rapid.Bool().Draw(t, "delete") {
						ops[key] = Delete([]byte(key))
					}
				}
				var sorted []*storepb.Op
				for _, key := range slices.Sorted(maps.Keys(ops)) {
					sorted = append(sorted, ops[key])
				}
				for _, c := range []*core{parts, whole} {
					apply(c, writes(sorted...))
				}
			case 3, 4:
				to := uint64(rapid.IntRange(0, int(a.Revision())+1).Draw(t, "to"))
				got := apply(parts, compactBy(&storepb.Compact{Revision: to,
					Events: uint64(rapid.IntRange(1, 5).Draw(t, "events"))}))
				if want := apply(whole, Compact(to)); got != want {
					t.Fatalf("compact %d: %v, want %v", to, got, want)
				}
			case 5, 6:
				at := a.Compacted() - uint64(rapid.IntRange(0, 1).Draw(t, "outdated"))
				if code := apply(parts, compactBy(&storepb.Compact{Revision: at, Resume: true,
					Events: uint64(rapid.IntRange(1, 5).Draw(t, "events"))})); code != storepb.Code_OK {
					t.Fatalf("resume: %v", code)
				}
			default:
				reopen(t, parts.members[0])
				a = parts.members[0].store
			}
			sameHistory(t, a, b)
		}
		// The leader removes the rest by itself, once it has applied something in its term.
		a := parts.members[0].store
		for _, c := range []*core{parts, whole} {
			put(t, c.members[0].store, "last", "")
		}
		if err := a.AwaitCompaction(context.Background()); err != nil {
			t.Fatal(err)
		}
		got, _, err := a.HashAll(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if want, _, err := whole.members[0].store.HashAll(context.Background()); err != nil ||
			got != want {
			t.Fatalf("in the end:\n%s\nwant\n%s\n%v", strings.Join(parts.members[0].dump(), "\n"),
				strings.Join(whole.members[0].dump(), "\n"), err)
		}
	})
}

func sameHistory(t fataler, a, b *Store) {
	t.Helper()
	if a.Compacted() != b.Compacted() || a.Revision() != b.Revision() {
		t.Fatalf("revisions %d to %d, want %d to %d", a.Compacted(), a.Revision(), b.Compacted(),
			b.Revision())
	}
	for revision := max(a.Compacted(), 1); revision <= a.Revision(); revision++ {
		q := &storepb.Range{Key: []byte{0}, RangeEnd: []byte{0}, Revision: revision, Count: true}
		got, err := a.Stale().Range(q)
		if err != nil {
			t.Fatal(err)
		}
		want, err := b.Stale().Range(q)
		if err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Fatalf("at revision %d: %v, want %v", revision, got, want)
		}
		gotHash, err := a.Hash(context.Background(), revision)
		if err != nil {
			t.Fatal(err)
		}
		if wantHash, err := b.Hash(context.Background(), revision); err != nil || gotHash != wantHash {
			t.Fatalf("hash at %d: %v, want %v, %v", revision, gotHash, wantHash, err)
		}
	}
	var events [2][]string
	for i, s := range []*Store{a, b} {
		compacted, err := history{s}.Changes(watch.Position{Revision: max(s.Compacted(), 1)}, true,
			func(e *watch.Event, at watch.Position) bool {
				events[i] = append(events[i], fmt.Sprint(at, e.KV, e.Previous))
				return true
			})
		if err != nil || compacted > 0 {
			t.Fatalf("history of %d: compacted %d, %v", i, compacted, err)
		}
	}
	if !slices.Equal(events[0], events[1]) {
		t.Fatalf("history %q, want %q", events[0], events[1])
	}
}

// No command of a compaction looks at more than StepEvents events, also if one revision has
// more; the caller has it done when it is answered and AwaitCompaction returns.
func TestCompactionOfALargeRevision(t *testing.T) {
	c, s := one(t, nil)
	const large = 3 * compaction.StepEvents
	write := func(value string) {
		var ops []*storepb.Op
		for k := range large {
			ops = append(ops, Put(fmt.Appendf(nil, "%05d", k), []byte(value)))
		}
		if _, err := s.DoOwn(t.Context(), writes(ops...)); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	write("second")
	put(t, s, "last", "")
	c.mu.Lock()
	from := len(c.log)
	c.mu.Unlock()
	do(t, s, Compact(s.Revision()))
	if err := s.AwaitCompaction(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	compactions := c.log[from:]
	c.mu.Unlock()
	for _, e := range compactions {
		decoded, _, err := command.Decode(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		// Revision 1 has no events.
		if m := decoded.GetCompact(); m.GetRevision() > 1 && (m.GetEvents() == 0 ||
			m.GetEvents() > compaction.StepEvents) {
			t.Errorf("a command without a bound: %v", decoded)
		}
	}
	// What is left: a version of each key, the last event, the applied index and the meta record.
	if n := len(c.members[0].dump()); n != large+1+1+2 {
		t.Errorf("%d pairs are left", n)
	}
}

// A user who may not compact loses no history, also not in the steps before the last.
func TestCompactionStepsNeedTheRight(t *testing.T) {
	_, s := one(t, nil)
	var ops []*storepb.Op
	for k := range 2 * compaction.StepEvents {
		ops = append(ops, Put(fmt.Appendf(nil, "%05d", k), nil))
	}
	for range 2 {
		if _, err := s.DoOwn(t.Context(), writes(ops...)); err != nil {
			t.Fatal(err)
		}
	}
	put(t, s, "last", "")
	withUsers(t, s)
	before := s.Compacted()
	if _, err := s.Do(t.Context(), &storepb.Command{Auth: &storepb.AuthInfo{User: "u", Revision: 1},
		Op: Compact(s.Revision()).Op}); err == nil {
		t.Error("a user without the right compacts")
	}
	if after := s.Compacted(); after != before {
		t.Errorf("compacted up to %d, before %d", after, before)
	}
}
