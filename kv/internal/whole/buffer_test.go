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

// What does not fit into memory goes to a file, and what does not fit there either is an error. The
// file is never larger than half of what is allowed, so that there is room for a copy of it.
func TestBufferSpills(t *testing.T) {
	const memory, spill = 32 << 20, 80 << 20
	b := New(Limits{Memory: memory, Spill: spill, Directory: t.TempDir()})
	defer b.Close()
	value := bytes.Repeat([]byte("v"), 1<<20)
	add := func(i int) error {
		err := b.Add(&Change{Key: fmt.Appendf(nil, "%04d", i), Value: value,
			Timestamp: hlc.Timestamp{Wall: int64(1000 - i)}})
		if inMemory, file := b.held.Held(); inMemory > memory/2 || file > spill/2 {
			t.Fatalf("%d bytes are in memory, and %d in the file", inMemory, file)
		}
		return err
	}
	for i := range 38 {
		if err := add(i); err != nil {
			t.Fatal(err)
		}
	}
	if share := b.Share(); share < 38./16 || share > 40./16 {
		t.Errorf("%f times what has room in memory is kept", share)
	}
	last, n := hlc.Timestamp{}, 0
	upto := func(wall int64) {
		t.Helper()
		more, err := b.Upto(hlc.Timestamp{Wall: wall}, func(c *Change) bool {
			if !last.Less(c.Timestamp) || !bytes.Equal(c.Value, value) {
				t.Fatalf("%s behind %s", c.Timestamp, last)
			}
			last = c.Timestamp
			n++
			return true
		})
		if err != nil || !more {
			t.Fatal(err)
		}
	}
	for wall := range int64(19) {
		upto(963 + wall)
	}
	if n != 19 {
		t.Fatalf("%d changes were handed on", n)
	}
	var err error
	kept := 19
	for i := -1; err == nil && i > -200; i-- {
		if err = add(i); err == nil {
			kept++
		}
	}
	if !errors.Is(err, ErrFull) || kept < 36 {
		t.Errorf("a buffer with %d changes, and without room: %v", kept, err)
	}
	upto(2000)
	if n != 19+kept || b.Share() != 0 {
		t.Errorf("%d changes were handed on, want %d; %f of the memory is taken up", n,
			19+kept, b.Share())
	}
}

// Forget keeps all changes up to a timestamp, and none above: as many as fit into half of the room,
// but never a part of those at one timestamp.
func TestBufferForgets(t *testing.T) {
	const each = 1 << 20
	value := make([]byte, each)
	for _, x := range []struct {
		held       string // the timestamps of the changes that are held
		next, most int64
		upto, kept int64
		forgot     bool
	}{
		{held: "123456789", next: 5, most: 100, upto: 7, kept: 7, forgot: true},
		{held: "123456789", next: 1, most: 100, upto: 7, kept: 7, forgot: true},
		{held: "123456789", next: 5, most: 3, upto: 3, kept: 3, forgot: true},
		{held: "55555555556", next: 5, most: 100, upto: 5, kept: 10, forgot: true},
		{held: "55555555555", next: 7, most: 100, upto: 5, kept: 11},
		{held: "55555555555", next: 4, most: 100, upto: 4, forgot: true},
		{held: "45555555555", next: 7, most: 100, upto: 4, kept: 1, forgot: true},
		{held: "123", next: 9, most: 100, upto: 3, kept: 3},
		{held: "78", next: 9, most: 5, upto: 5, forgot: true},
		{next: 9, most: 100, upto: 9},
	} {
		b := New(Limits{Memory: 32 << 20})
		for i, c := range x.held {
			if err := b.Add(&Change{Key: fmt.Append(nil, i), Value: value,
				Timestamp: hlc.Timestamp{Wall: int64(c - '0')}}); err != nil {
				t.Fatal(err)
			}
		}
		upto, forgot, err := b.Forget(hlc.Timestamp{Wall: x.next}, hlc.Timestamp{Wall: x.most})
		if kept := int64(0); upto.Wall != x.upto || forgot != x.forgot || err != nil {
			t.Errorf("%+v: all up to %s is kept, %v; %v", x, upto, forgot, err)
		} else if _, err := b.Upto(hlc.MaxTimestamp.Prev(), func(c *Change) bool {
			kept++
			return c.Timestamp.LessEq(upto)
		}); err != nil || kept != x.kept {
			t.Errorf("%+v: %d changes are kept; %v", x, kept, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
