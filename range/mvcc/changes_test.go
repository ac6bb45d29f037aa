package mvcc

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// changedKey are few keys, of which one is another one's prefix, and one ends in a zero byte.
var changedKeys = []string{"a", "a\x00", "ab", "b", "c"}

// storedVersion is one that the model has.
type storedVersion struct {
	key   string
	ts    hlc.Timestamp
	value string // "": a tombstone
}

func (v storedVersion) String() string { return fmt.Sprintf("%q@%s=%.8q", v.key, v.ts, v.value) }

// TestChangesAgainstModel: whatever was written, flushed, compacted and removed, the pages of a
// read of changes are together exactly the versions between two timestamps, by keys, and of each
// key the oldest first; and no page but one with a single version is larger than was asked for.
func TestChangesAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		var model []storedVersion
		timestamp := rapid.Custom(func(t *rapid.T) hlc.Timestamp {
			return hlc.Timestamp{Wall: rapid.Int64Range(1, 12).Draw(t, "wall"),
				Logical: rapid.Uint32Range(0, 2).Draw(t, "logical")}
		})
		for range rapid.IntRange(1, 6).Draw(t, "tables") {
			batch := state.NewBatch()
			for range rapid.IntRange(0, 60).Draw(t, "versions") {
				v := storedVersion{rapid.SampledFrom(changedKeys).Draw(t, "key"), timestamp.Draw(t, "at"),
					strings.Repeat("v", rapid.SampledFrom([]int{0, 1, 9, 30 << 10}).Draw(t, "size"))}
				if slices.ContainsFunc(model, func(o storedVersion) bool {
					return o.key == v.key && o.ts == v.ts
				}) {
					continue
				}
				model = append(model, v)
				if v.value == "" {
					err = remove(batch, []byte(v.key), v.ts, RequestID{})
				} else {
					err = put(batch, []byte(v.key), v.ts, RequestID{}, []byte(v.value))
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for range rapid.IntRange(0, 3).Draw(t, "removed") {
				if len(model) == 0 {
					break
				}
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				stateKey := keys.AppendTimestamp(keys.DataKey([]byte(model[i].key)), model[i].ts)
				if err := Remove(batch, [][]byte{stateKey}); err != nil {
					t.Fatal(err)
				}
				model = slices.Delete(model, i, i+1)
			}
			if err := state.Commit(batch); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "flush") {
				if err := state.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 4 {
			checkChanges(t, state, model, ChangesOptions{
				Span:       changedSpan(t),
				After:      rapid.OneOf(rapid.Just(hlc.Timestamp{}), timestamp).Draw(t, "after"),
				Upto:       timestamp.Draw(t, "upto"),
				MaxBytes:   rapid.SampledFrom([]int64{0, 1, 20, 100 << 10}).Draw(t, "bytes"),
				MaxSkipped: rapid.IntRange(0, 3).Draw(t, "skipped"),
			})
		}
	})
}

func changedSpan(t *rapid.T) keys.Span {
	span := keys.Span{Start: []byte(rapid.SampledFrom(changedKeys).Draw(t, "start"))}
	if rapid.Bool().Draw(t, "bounded") {
		span.End = []byte(rapid.SampledFrom(changedKeys).Draw(t, "end"))
	}
	return span
}

func checkChanges(t *rapid.T, state *engine.State, model []storedVersion, o ChangesOptions) {
	var want []string
	slices.SortFunc(model, func(a, b storedVersion) int {
		if c := strings.Compare(a.key, b.key); c != 0 {
			return c
		}
		return a.ts.Compare(b.ts)
	})
	for _, v := range model {
		if o.Span.Contains([]byte(v.key)) && o.After.Less(v.ts) && v.ts.LessEq(o.Upto) {
			want = append(want, v.String())
		}
	}
	var got []string
	for page := 0; ; page++ {
		if page > 200 {
			t.Fatalf("%+v: the pages do not end", o)
		}
		var size int64
		emitted := 0
		result, err := Changes(state, o, func(key []byte, v Version) error {
			got = append(got, storedVersion{string(key), v.Timestamp, string(v.Value)}.String())
			if (v.Kind == KindTombstone) != (len(v.Value) == 0) {
				t.Fatalf("%q at %s is a %s", key, v.Timestamp, v.Kind)
			}
			size += int64(len(key) + len(v.Value))
			emitted++
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if o.MaxBytes > 0 && size > o.MaxBytes && emitted > 1 {
			t.Fatalf("%+v: a page of %d bytes, in %d versions", o, size, emitted)
		}
		if !result.More {
			break
		}
		if emitted == 0 && o.MaxSkipped == 0 || bytes.Compare(result.Resume, o.Span.Start) < 0 {
			t.Fatalf("%+v: a page leads to %+v", o, result)
		}
		o.Span.Start, o.AfterOfFirst = result.Resume, result.ResumeVersion
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v:\n got %s\nwant %s", o, got, want)
	}
}

// TestChangesSkipTables: what was written outside of the interval is not read.
func TestChangesSkipTables(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for wall := int64(1); wall <= 7; wall += 2 {
		batch := state.NewBatch()
		for i := range 2000 {
			if err := put(batch, fmt.Appendf(nil, "%d-%04d", wall, i), hlc.Timestamp{Wall: wall},
				RequestID{}, bytes.Repeat([]byte{'v'}, 100)); err != nil {
				t.Fatal(err)
			}
		}
		if err := state.Commit(batch); err != nil {
			t.Fatal(err)
		}
		if err := state.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	result, err := Changes(state, ChangesOptions{Span: keys.Span{Start: []byte("0")},
		After: hlc.Timestamp{Wall: 4}, Upto: hlc.Timestamp{Wall: 5}, MaxSkipped: 1,
	}, func([]byte, Version) error { count++; return nil })
	if err != nil || result.More || count != 2000 {
		t.Fatalf("%d changes, %+v, %v", count, result, err)
	}
}
