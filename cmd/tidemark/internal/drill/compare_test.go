package drill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
)

// sides are a backup and a restored keyspace in memory.
type sides struct{ stored, restored map[string]Record }

func (s sides) source() Source {
	pair := func(key string) kv.Pair {
		r, there := s.restored[key]
		if !there {
			return kv.Pair{Key: []byte(key)}
		}
		return kv.Pair{Key: []byte(key), Value: r.Value, Expires: r.Expires,
			Version: hlc.Timestamp{Wall: 1}}
	}
	return Source{
		Stored: func(context.Context) iter.Seq2[Record, error] {
			return func(yield func(Record, error) bool) {
				for _, key := range slices.Sorted(maps.Keys(s.stored)) {
					r := s.stored[key]
					if r.Key = []byte(key); !yield(r, nil) {
						return
					}
				}
			}
		},
		Get: func(_ context.Context, keys [][]byte) (pairs []kv.Pair, err error) {
			for _, key := range keys {
				pairs = append(pairs, pair(string(key)))
			}
			return pairs, nil
		},
		Scan: func(context.Context) iter.Seq2[kv.Pair, error] {
			return func(yield func(kv.Pair, error) bool) {
				for _, key := range slices.Sorted(maps.Keys(s.restored)) {
					if !yield(pair(key), nil) {
						return
					}
				}
			}
		},
	}
}

// Each kind of difference is found and named, with many records and few keys in memory.
func TestCompareFindsDifferences(t *testing.T) {
	defer func(before uint64) { keysAtOnce = before }(keysAtOnce)
	keysAtOnce = 100
	later := time.Now().Add(time.Hour).Truncate(0)
	fill := func() sides {
		s := sides{make(map[string]Record), make(map[string]Record)}
		for i := range 2*batchRecords + 10 {
			r := Record{Value: fmt.Append(nil, "value ", i)}
			if i%3 == 0 {
				r.Expires = later
			}
			key := fmt.Sprintf("key %05d", i)
			s.stored[key], s.restored[key] = r, r
		}
		s.stored["expired"] = Record{Value: []byte("x"), Expires: time.Now().Add(-time.Second)}
		return s
	}
	const key = "key 00600"
	for _, c := range []struct {
		kind   Kind
		change func(s sides)
	}{
		{"", func(sides) {}},
		{Missing, func(s sides) { delete(s.restored, key) }},
		{Extra, func(s sides) { delete(s.stored, key) }},
		{Other, func(s sides) { s.restored[key] = Record{Value: []byte("x"), Expires: later} }},
		{OtherExpiry, func(s sides) { s.restored[key] = Record{Value: s.stored[key].Value} }},
	} {
		s := fill()
		c.change(s)
		told := uint64(0)
		source := s.source()
		source.Progress = func(n uint64) { told = n }
		got, err := Compare(t.Context(), source)
		if err != nil {
			t.Fatal(err)
		}
		want := &Result{Compared: uint64(len(s.stored) - 1), Expired: 1}
		if c.kind != "" {
			want.Differences, want.First = 1, []Difference{{[]byte(key), c.kind}}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || told != got.Compared {
			t.Errorf("%q: %+v, want %+v; %d were told", c.kind, got, want, told)
		}
	}

	// A missing record and an additional one are two differences, though the numbers are equal.
	s := fill()
	delete(s.restored, key)
	s.restored["another"] = Record{Value: []byte("x")}
	got, err := Compare(t.Context(), s.source())
	if err != nil || got.Differences != 2 || len(got.First) != 2 {
		t.Errorf("%+v, %v", got, err)
	}

	// All differ: all are counted, and some are named.
	s.restored = nil
	got, err = Compare(t.Context(), s.source())
	if err != nil || got.Differences != got.Compared || len(got.First) != MaxNamed {
		t.Errorf("%+v, %v", got, err)
	}
}

// An error of either side ends the comparison.
func TestCompareEndsWithErrors(t *testing.T) {
	wrong := errors.New("wrong")
	s := sides{map[string]Record{"a": {Value: []byte("x")}}, map[string]Record{"a": {Value: []byte("x")}}}
	for name, change := range map[string]func(*Source){
		"stored": func(s *Source) {
			s.Stored = func(context.Context) iter.Seq2[Record, error] {
				return func(yield func(Record, error) bool) { yield(Record{}, wrong) }
			}
		},
		"get": func(s *Source) {
			s.Get = func(context.Context, [][]byte) ([]kv.Pair, error) { return nil, wrong }
		},
		"scan": func(s *Source) {
			s.Scan = func(context.Context) iter.Seq2[kv.Pair, error] {
				return func(yield func(kv.Pair, error) bool) { yield(kv.Pair{}, wrong) }
			}
		},
	} {
		source := s.source()
		change(&source)
		if _, err := Compare(t.Context(), source); !errors.Is(err, wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
