package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/time/rate"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const backupID = "20260131T120000Z-1a2b3c4d"

// listed is a Source of a list of records, with pages of so many.
type listed struct {
	records []archive.Record
	page    int
	fails   error
}

func (l *listed) Page(_ context.Context, q Query) (Page, error) {
	if l.fails != nil {
		return Page{}, l.fails
	}
	var p Page
	for _, r := range l.records {
		if !q.Span.Contains(r.Key) {
			continue
		}
		if len(p.Records) == l.page {
			p.Rest = keys.Span{Start: r.Key, End: q.Span.End}
			return p, nil
		}
		p.Records = append(p.Records, r)
	}
	p.Over = true
	return p, nil
}

func open(t testing.TB) target.Target {
	t.Helper()
	store, err := target.Open(t.Context(), "file://"+t.TempDir(), target.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func unit(span keys.Span) Unit {
	return Unit{Backup: backupID, Kind: manifest.Full, Keyspace: "fruit",
		Query: Query{Keyspace: 7, Span: span, At: hlc.Timestamp{Wall: 1000}}}
}

// read reads the pieces of a Done, and compares each with what the Done says of it.
func read(t interface{ Fatalf(string, ...any) }, store target.Target,
	done *manifest.Done) (all []archive.Record) {
	for _, piece := range done.Pieces {
		data, err := store.Get(context.Background(), piece.Name)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if sum := archive.SumOf(data); sum.SHA256 != piece.Sum || uint64(sum.Size) != piece.Size {
			t.Fatalf("the sum of %s is %v, it says %v", piece.Name, sum, piece)
		}
		r, err := archive.Open(data, nil)
		if err != nil {
			t.Fatalf("%v", err)
		}
		n, size := uint64(0), uint64(0)
		first := len(all)
		for {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v", err)
			}
			record.Key, record.Value = bytes.Clone(record.Key), bytes.Clone(record.Value)
			all = append(all, record)
			n, size = n+1, size+uint64(len(record.Key)+len(record.Value))
		}
		if n != piece.Records || size != piece.Bytes || !bytes.Equal(all[first].Key, piece.First) ||
			!bytes.Equal(all[len(all)-1].Key, piece.Last) {
			t.Fatalf("%d records of %d bytes from %q to %q, it says %v", n, size, all[first].Key,
				all[len(all)-1].Key, piece)
		}
	}
	return all
}

// A worker writes all records of the source in the span, with any sizes of pages and pieces.
func TestWriteModel(t *testing.T) {
	store := open(t)
	rapid.Check(t, func(t *rapid.T) {
		source := &listed{page: rapid.IntRange(1, 20).Draw(t, "page")}
		for _, key := range rapid.SliceOfNDistinct(rapid.StringN(1, 6, 12), 0, 60,
			rapid.ID[string]).Draw(t, "keys") {
			source.records = append(source.records, archive.Record{Key: []byte(key),
				Timestamp: hlc.Timestamp{Wall: rapid.Int64Range(1, 1000).Draw(t, "at")},
				Value:     rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "value"),
				Expiry:    rapid.SampledFrom([]int64{0, 5000}).Draw(t, "expiry")})
		}
		slices.SortFunc(source.records, func(a, b archive.Record) int {
			return bytes.Compare(a.Key, b.Key)
		})
		w, err := NewWorker(Config{Source: source, Target: store, Random: rand.Uint64,
			PieceBytes: rapid.SampledFrom([]int{1, 200, 1 << 20}).Draw(t, "piece"),
			Rate:       rate.NewLimiter(rate.Inf, 16)})
		if err != nil {
			t.Fatalf("%v", err)
		}
		span := keys.Span{Start: []byte(rapid.StringN(0, 2, 4).Draw(t, "start"))}
		if end := rapid.StringN(0, 2, 4).Draw(t, "end"); end > string(span.Start) {
			span.End = []byte(end)
		}
		done, err := w.Write(context.Background(), unit(span))
		if err != nil {
			t.Fatalf("%v", err)
		}
		want := slices.DeleteFunc(slices.Clone(source.records), func(r archive.Record) bool {
			return !span.Contains(r.Key)
		})
		got := read(t, store, done)
		if !slices.EqualFunc(got, want, func(a, b archive.Record) bool {
			return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) &&
				a.Timestamp == b.Timestamp && a.Expiry == b.Expiry
		}) {
			t.Fatalf("%d records instead of %d", len(got), len(want))
		}
	})
}

// A source that fails, and one that does not lead on, end the unit with the keyspace in the error.
func TestSourceFails(t *testing.T) {
	lost := errors.New("the node is gone")
	for name, source := range map[string]Source{
		"fails": &listed{page: 1, fails: lost},
		"stays": staying{},
	} {
		w, err := NewWorker(Config{Source: source, Target: open(t), Random: rand.Uint64})
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Write(t.Context(), unit(keys.Span{}))
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(`"fruit"`)) ||
			name == "fails" && !errors.Is(err, lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// staying is a Source whose pages never end.
type staying struct{}

func (staying) Page(_ context.Context, q Query) (Page, error) { return Page{Rest: q.Span}, nil }

// A worker whose context ends stops between two pages.
func TestWriteStops(t *testing.T) {
	source, value := &listed{page: 1}, make([]byte, yieldBytes)
	for i := range 100 {
		source.records = append(source.records, archive.Record{Key: fmt.Appendf(nil, "%03d", i),
			Timestamp: hlc.Timestamp{Wall: 1}, Value: value})
	}
	ctx, cancel := context.WithCancel(t.Context())
	pages := 0
	w, err := NewWorker(Config{Source: source, Target: open(t), Random: rand.Uint64,
		Pause: func(ctx context.Context, _ time.Duration) error {
			if pages++; pages == 10 {
				cancel()
			}
			return ctx.Err()
		}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(ctx, unit(keys.Span{})); !errors.Is(err, context.Canceled) || pages != 10 {
		t.Errorf("after %d pages: %v", pages, err)
	}
}
