package mvcc

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
)

// partitionPrefix is what the keys of one of a few spans start with.
func partitionPrefix(n int) []byte { return []byte{0, 0, 0, 9, 0, byte(n)} }

// Merge gives what the scans of its sources give, sorted; page by page, whatever the limits.
func TestMergeBesideScans(t *testing.T) {
	s := openState(t)
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		all := keys.DataSpan(keys.PrefixSpan([]byte{0, 0, 0, 9}))
		b := s.NewBatch()
		if err := b.DeleteRange(all.Start, all.End, nil); err != nil {
			t.Fatal(err)
		}
		partitions := rapid.IntRange(1, 6).Draw(t, "partitions")
		written := map[string]bool{}
		for range rapid.IntRange(0, 60).Draw(t, "writes") {
			user := genKey.Draw(t, "key")[4:]
			n := int(keys.HashPartition(user, uint32(partitions)))
			key, ts := append(partitionPrefix(n), user...), genTimestamp.Draw(t, "ts")
			if written[string(key)+ts.String()] {
				continue
			}
			written[string(key)+ts.String()] = true
			var err error
			if rapid.IntRange(0, 3).Draw(t, "tombstone") == 0 {
				err = remove(b, key, ts, RequestID{})
			} else {
				h := Header{Kind: KindValue}
				if rapid.IntRange(0, 2).Draw(t, "expires") == 0 {
					h.Expires = ts.Wall + rapid.Int64Range(1, 15).Draw(t, "ttl")
				}
				err = Write(b, key, ts, h, genValue.Draw(t, "value"))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Commit(b); err != nil {
			t.Fatal(err)
		}
		_ = b.Close()
		if run%10 == 0 {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		// What the first one remembers of vacant spans the others use.
		var memories []vacant.Memory
		if rapid.Bool().Draw(t, "vacant") {
			memories = make([]vacant.Memory, partitions)
			for i := range memories {
				memories[i].Init(nil, 1+i%2)
			}
		}
		for range rapid.IntRange(1, 3).Draw(t, "merges") {
			checkMerge(t, s, partitions, memories)
		}
	})
}

// checkMerge compares one Merge with scans of its sources.
func checkMerge(t *rapid.T, s *engine.State, partitions int, memories []vacant.Memory) {
	var kept []Kept
	if rapid.Bool().Draw(t, "kept") {
		kept = make([]Kept, partitions)
		for i := range kept {
			defer kept[i].Close()
		}
	}
	span := keys.Span{Start: genKey.Draw(t, "start")[4:]}
	if rapid.Bool().Draw(t, "bounded") {
		span.End = genKey.Draw(t, "end")[4:]
	}
	o := ScanOptions{
		At:         genTimestamp.Draw(t, "at"),
		Reverse:    rapid.Bool().Draw(t, "reverse"),
		KeysOnly:   rapid.Bool().Draw(t, "keysOnly"),
		MaxRows:    rapid.IntRange(0, 5).Draw(t, "maxRows"),
		MaxBytes:   rapid.Int64Range(0, 40).Draw(t, "maxBytes"),
		MaxSkipped: rapid.IntRange(0, 3).Draw(t, "maxSkipped"),
	}
	sources := func(span keys.Span) (all []Source) {
		for n := range partitions {
			prefix := partitionPrefix(n)
			internal := keys.Span{Start: append(slices.Clone(prefix), span.Start...),
				End: keys.PrefixEnd(prefix)}
			if len(span.End) > 0 {
				internal.End = append(slices.Clone(prefix), span.End...)
			}
			source := Source{Reader: s, Span: internal, Prefix: len(prefix)}
			if n == 1 {
				source.Uncertain = Limits{Versions: hlc.Timestamp{Wall: 20},
					Expiries: hlc.Timestamp{Wall: 15}}
			}
			if kept != nil {
				source.Kept = &kept[n]
			}
			if memories != nil {
				source.Vacant = &memories[n]
			}
			all = append(all, source)
		}
		return all
	}
	var want []row
	uncertain := false
	for _, source := range sources(span) {
		one := o
		one.Span, one.Uncertain = source.Span, source.Uncertain
		one.MaxRows, one.MaxBytes, one.MaxSkipped = 0, 0, 0
		_, err := Scan(s, one, func(key []byte, v Version) error {
			v.Value = bytes.Clone(v.Value)
			want = append(want, row{string(key[source.Prefix:]), v})
			return nil
		})
		uncertain = uncertain || err != nil
	}
	slices.SortFunc(want, func(a, b row) int {
		if o.Reverse {
			return strings.Compare(b.key, a.key)
		}
		return strings.Compare(a.key, b.key)
	})
	var got []row
	for pages := 0; ; pages++ {
		if pages > 300 {
			t.Fatalf("merge %+v does not get on", o)
		}
		rows := 0
		var size int64
		result, err := Merge(sources(span), o, func(key []byte, v Version) error {
			v.Value = bytes.Clone(v.Value)
			got = append(got, row{string(key), v})
			rows++
			size += int64(len(key) + len(v.Value))
			return nil
		})
		var uncertainty *UncertaintyError
		if errors.As(err, &uncertainty) && uncertain {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if result.Rows != rows || result.Bytes != size || (o.MaxRows > 0 && rows > o.MaxRows) ||
			(o.MaxBytes > 0 && rows > 1 && size > o.MaxBytes) {
			t.Fatalf("merge %+v: %+v, emitted %d rows of %d bytes", o, result, rows, size)
		}
		if !result.More {
			break
		}
		// Nothing that was emitted lies beyond where the page ends.
		if n := len(got); n > 0 && (got[n-1].key < string(result.Resume)) == o.Reverse {
			t.Fatalf("merge %+v resumes at %q after %q", o, result.Resume, got[n-1].key)
		}
		span = remainder(result, span, o.Reverse)
	}
	if uncertain {
		t.Fatalf("merge %+v met no uncertain version, and the scan of a source did", o)
	}
	if !sameRows(got, want) {
		t.Fatalf("merge %+v:\n got %v\nwant %v", o, got, want)
	}
}

// failingReader's iterators cannot be made.
type failingReader struct{ engine.Reader }

var errNoIterator = errors.New("no iterator")

func (failingReader) NewIter(*pebble.IterOptions) (*pebble.Iterator, error) {
	return nil, errNoIterator
}

// A source that cannot be read fails the whole, and the others' iterators are closed: the state
// closes only without open ones.
func TestMergeFails(t *testing.T) {
	s := openState(t)
	whole := keys.PrefixSpan([]byte{0, 0, 0, 9})
	_, err := Merge([]Source{{Reader: s, Span: whole}, {Reader: failingReader{s}, Span: whole}},
		ScanOptions{At: hlc.MaxTimestamp}, nil)
	if !errors.Is(err, errNoIterator) {
		t.Fatal(err)
	}
}
