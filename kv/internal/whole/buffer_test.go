package whole

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
)

// A buffer returns what sorting all changes by timestamp and key, and cutting them at the progress,
// returns.
func TestBuffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Limits{Spill: 1 << 30})
		defer b.Close()
		var kept []Change
		low := hlc.Timestamp{}
		for range rapid.IntRange(1, 5).Draw(t, "groups") {
			for range rapid.IntRange(0, 20).Draw(t, "changes") {
				c := Change{Key: []byte(rapid.StringN(1, 3, -1).Draw(t, "key")),
					Timestamp: hlc.Timestamp{Wall: low.Wall + rapid.Int64Range(1, 5).Draw(t, "wall"),
						Logical: rapid.Uint32Range(0, 2).Draw(t, "logical")},
					Deleted: rapid.Bool().Draw(t, "deleted"), Expires: rapid.Int64Range(0, 1<<62).
							Draw(t, "expires"), Value: rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value")}
				same := slices.IndexFunc(kept, func(k Change) bool { return order(&k, &c) == 0 })
				if same >= 0 {
					c = kept[same] // a version never changes
				} else {
					kept = append(kept, c)
				}
				if err := b.Add(&c); err != nil {
					t.Fatal(err)
				}
			}
			low.Wall += rapid.Int64Range(0, 5).Draw(t, "progress")
			var want, got, rest []string
			slices.SortFunc(kept, func(a, b Change) int { return order(&a, &b) })
			var above []Change
			for _, c := range kept {
				if low.Less(c.Timestamp) {
					above = append(above, c)
					rest = append(rest, fmt.Sprint(c))
				} else {
					want = append(want, fmt.Sprint(c))
				}
			}
			more, err := b.Upto(low, func(c *Change) bool {
				got = append(got, fmt.Sprint(*c))
				return true
			})
			if err != nil || !more || !slices.Equal(got, want) {
				t.Fatalf("upto %s: %v, want %v; above: %v; %v", low, got, want, rest, err)
			}
			kept = above
		}
	})
}

func order(a, b *Change) int {
	if c := a.Timestamp.Compare(b.Timestamp); c != 0 {
		return c
	}
	return bytes.Compare(a.Key, b.Key)
}

// What does not fit into memory goes to a file, and what does not fit there either is an error.
func TestBufferSpills(t *testing.T) {
	const memory = 32 << 20
	b := New(Limits{Memory: memory, Spill: 40 << 20, Directory: t.TempDir()})
	defer b.Close()
	value := bytes.Repeat([]byte("v"), 1<<20)
	add := func(i int) error {
		return b.Add(&Change{Key: fmt.Appendf(nil, "%04d", i), Value: value,
			Timestamp: hlc.Timestamp{Wall: int64(1000 - i)}})
	}
	for i := range 40 {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	last, n := hlc.Timestamp{}, 0
	more, err := b.Upto(hlc.Timestamp{Wall: 980}, func(c *Change) bool {
		if !last.Less(c.Timestamp) || !bytes.Equal(c.Value, value) {
			t.Fatalf("%s behind %s", c.Timestamp, last)
		}
		last = c.Timestamp
		n++
		return true
	})
	if err != nil || !more || n != 20 || b.held.Records() != 20 {
		t.Fatalf("%d changes were handed on and %d kept: %v", n, b.held.Records(), err)
	}
	for i := 40; err == nil && i < 200; i++ {
		err = add(i)
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("a buffer without room: %v", err)
	}
}
