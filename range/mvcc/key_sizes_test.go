package mvcc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Each key is visited once, in order, with the lengths of all its versions, however often the visit
// is interrupted; and all together are what is there.
func TestKeySizes(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	want := map[string]int64{}
	batch := state.NewBatch()
	for i := range 200 {
		key := fmt.Appendf(nil, "pref%05d", i)
		for v := range 1 + rand.IntN(6) {
			ts := hlc.Timestamp{Wall: int64(1000 + v)}
			value := bytes.Repeat([]byte("v"), rand.IntN(200))
			if err := put(batch, key, ts, RequestID{}, value); err != nil {
				t.Fatal(err)
			}
			want[string(key)] += int64(keys.VersionedKeySize(key, ts) + len(value))
		}
	}
	if err := state.Commit(batch); err != nil {
		t.Fatal(err)
	}
	span := keys.Span{Start: []byte("pref00010"), End: []byte("pref00150")}
	for _, versions := range []int{1, 7, 1 << 30} {
		var last []byte
		n := 0
		for from := span.Start; from != nil; {
			from, err = KeySizes(state, keys.Span{Start: from, End: span.End}, versions,
				func(key []byte, size int64) bool {
					if bytes.Compare(key, last) <= 0 || want[string(key)] != size {
						t.Fatalf("%d at a time: %q has %d bytes, want %d, after %q", versions, key, size,
							want[string(key)], last)
					}
					last = append(last[:0], key...)
					n++
					return true
				})
			if err != nil {
				t.Fatal(err)
			}
		}
		if n != 140 {
			t.Errorf("%d at a time: %d keys, want 140", versions, n)
		}
	}
	if last, err := LastKey(state, span); err != nil || string(last) != "pref00149" {
		t.Errorf("the last key is %q, %v", last, err)
	}
	empty := keys.Span{Start: []byte("x"), End: []byte("y")}
	if last, err := LastKey(state, empty); err != nil || last != nil {
		t.Errorf("the last key of nothing is %q, %v", last, err)
	}
}
