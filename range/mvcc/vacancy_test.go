package mvcc

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
)

// applied commits a batch as a replica does: the memory hears of what is written before.
func applied(t testing.TB, s *engine.State, m *vacant.Memory, writes []vacant.Write, id *uint64) {
	t.Helper()
	tell := m.Begin()
	defer m.End()
	if tell {
		m.Wrote(writes)
	}
	commit(t, s, func(b *engine.StateBatch) error {
		for _, w := range writes {
			*id++
			h := Header{Kind: KindValue, Request: RequestID{Client: 1, Sequence: *id},
				CommitWait: w.CommitWait}
			if w.Tombstone {
				h.Kind = KindTombstone
			}
			if err := Write(b, w.Key, w.Timestamp, h, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// page is what a scan of one page gives.
type page struct {
	rows   string
	result ScanResult
	err    string
}

// pagesOf reads all pages of a scan. Empty pages are left out, and where the others end is not
// compared: a page that passes over a vacant span comes further.
func pagesOf(r engine.Reader, o ScanOptions) (all page) {
	for {
		result, err := Scan(r, o, func(key []byte, v Version) error {
			all.rows += fmt.Sprintf("%q@%s ", key, v.Timestamp)
			return nil
		})
		var u *UncertaintyError
		if errors.As(err, &u) {
			all.err = fmt.Sprintf("%q %s %v", u.Key, u.Timestamp, u.Expiry)
			return all
		} else if err != nil {
			all.err = err.Error()
			return all
		}
		all.result.Rows += result.Rows
		all.result.CommitWaitUntil = hlc.Max(all.result.CommitWaitUntil, result.CommitWaitUntil)
		if !result.More {
			return all
		}
		o.Span = remainder(result, o.Span, o.Reverse)
	}
}

// TestVacantModel compares scans that use and fill a memory with scans of the same state that do
// not, while keys are written and deleted, also in the middle of a scan, and garbage goes.
func TestVacantModel(t *testing.T) {
	passed := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := openState(t)
		m := &vacant.Memory{}
		budget := rapid.SampledFrom([]int64{300, 1000, 1 << 20}).Draw(rt, "budget")
		m.Init(vacant.NewBudget(budget), 2)
		var id uint64
		now := hlc.Timestamp{Wall: 10}
		threshold := hlc.Timestamp{Wall: 1}
		key := func(name string) []byte {
			return fmt.Appendf([]byte{0, 0, 0, 7}, "%02d", rapid.IntRange(0, 30).Draw(rt, name))
		}
		write := func() {
			var writes []vacant.Write
			n := rapid.IntRange(1, 12).Draw(rt, "writes")
			first := rapid.IntRange(0, 30).Draw(rt, "first")
			row := rapid.Bool().Draw(rt, "in a row")
			dead := rapid.IntRange(0, 3).Draw(rt, "dead")
			for i := range n {
				now.Wall++
				k := fmt.Appendf([]byte{0, 0, 0, 7}, "%02d", (first+i)%31)
				if !row {
					k = key("key")
				}
				writes = append(writes, vacant.Write{Key: k, Timestamp: now,
					Tombstone:  rapid.IntRange(0, 3).Draw(rt, "tombstone") < dead,
					CommitWait: rapid.IntRange(0, 9).Draw(rt, "waits") == 0})
			}
			applied(t, s, m, writes, &id)
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1, 2, 3:
				write()
			case 4:
				threshold = hlc.Timestamp{Wall: rapid.Int64Range(threshold.Wall, now.Wall).Draw(rt, "gc")}
				found, err := Garbage(s, keys.Span{}, threshold, GarbageLimits{})
				if err != nil {
					rt.Fatal(err)
				}
				commit(t, s, func(b *engine.StateBatch) error { return Remove(b, found.Versions) })
			case 5:
				if rapid.IntRange(0, 4).Draw(rt, "reset") == 0 {
					m.Begin()
					m.Reset()
					m.End()
				}
			default:
				o := ScanOptions{Span: keys.Span{Start: []byte{0, 0, 0, 7}, End: []byte{0, 0, 0, 8}},
					At:         hlc.Timestamp{Wall: rapid.Int64Range(threshold.Wall, now.Wall+2).Draw(rt, "at")},
					Reverse:    rapid.Bool().Draw(rt, "reverse"),
					MaxSkipped: rapid.SampledFrom([]int{0, 1, 3, 10}).Draw(rt, "skipped"),
					MaxBytes:   int64(rapid.SampledFrom([]int{0, 0, 1, 30, 100}).Draw(rt, "bytes")),
					MaxRows:    rapid.SampledFrom([]int{0, 1, 5}).Draw(rt, "rows")}
				if rapid.Bool().Draw(rt, "part") {
					a, b := key("start"), key("end")
					if string(b) < string(a) {
						a, b = b, a
					}
					o.Span = keys.Span{Start: a, End: b}
				}
				if rapid.IntRange(0, 3).Draw(rt, "uncertain") == 0 {
					o.Uncertain.Versions = hlc.Timestamp{Wall: o.At.Wall + rapid.Int64Range(0, 9).Draw(rt,
						"until")}
				}
				want := pagesOf(s, o)
				o.Vacant = m
				at := o.At
				if rapid.Bool().Draw(rt, "writes during the scan") && o.Uncertain.Versions.IsZero() {
					// What is written while a scan runs is above its timestamp.
					now.Wall = max(now.Wall, at.Wall)
					reader := &interrupted{Reader: s, then: write,
						at: rapid.IntRange(1, 3).Draw(rt, "interrupted")}
					if got := pagesOf(reader, o); got.rows != want.rows || got.err != want.err {
						rt.Fatalf("%+v: %+v, want %+v", o, got, want)
					}
					want = pagesOf(s, ScanOptions{Span: o.Span, At: at, Reverse: o.Reverse,
						MaxRows: o.MaxRows})
				}
				before := len(m.Spans())
				got := pagesOf(s, o)
				if before > 0 {
					passed++
				}
				if got.rows != want.rows || got.err != want.err ||
					want.err == "" && got.result.CommitWaitUntil.Less(want.result.CommitWaitUntil) {
					rt.Fatalf("%+v with %+v: %+v, want %+v", o, m.Spans(), got, want)
				}
				checkSpans(rt, s, m, now)
			}
		}
	})
	if passed == 0 {
		t.Error("no scan has found a vacant span")
	}
}

// TestVacantWalkHears: what is written into a span after the scan has begun to learn that the span
// is vacant is found by the next scan.
func TestVacantWalkHears(t *testing.T) {
	s, m, id := openState(t), &vacant.Memory{}, uint64(0)
	m.Init(vacant.NewBudget(1<<20), 2)
	key := func(i int) []byte { return fmt.Appendf([]byte{0, 0, 0, 7}, "%02d", i) }
	all := keys.Span{Start: []byte{0, 0, 0, 7}, End: []byte{0, 0, 0, 8}}
	var deleted []vacant.Write
	for i := range 20 {
		deleted = append(deleted, vacant.Write{Key: key(i), Tombstone: true,
			Timestamp: hlc.Timestamp{Wall: int64(i + 1)}})
	}
	applied(t, s, m, deleted, &id)
	// The first iterator is the scan's, the second that of the walk.
	reader := &interrupted{Reader: s, at: 2, then: func() {
		applied(t, s, m, []vacant.Write{{Key: key(7), Timestamp: hlc.Timestamp{Wall: 200}}}, &id)
	}}
	got := pagesOf(reader, ScanOptions{Span: all, At: hlc.Timestamp{Wall: 100}, Vacant: m})
	if got.result.Rows != 0 {
		t.Fatalf("before the write: %+v", got)
	}
	if reader.at != 0 || len(m.Spans()) == 0 {
		t.Fatalf("the scan has not learned: %d, %+v", reader.at, m.Spans())
	}
	got = pagesOf(s, ScanOptions{Span: all, At: hlc.Timestamp{Wall: 300}, Vacant: m})
	if got.result.Rows != 1 {
		t.Errorf("with %+v: %+v, want the key that was written", m.Spans(), got)
	}
}

// interrupted has something written before its nth iterator is opened.
type interrupted struct {
	engine.Reader
	then func()
	at   int
}

func (r *interrupted) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	if r.at--; r.at == 0 {
		iter, err := r.Reader.NewIter(o)
		r.then() // after the iterator has come to see what it sees
		return iter, err
	}
	return r.Reader.NewIter(o)
}

// checkSpans sees to it that vacant spans are vacant, and in order.
func checkSpans(t *rapid.T, s *engine.State, m *vacant.Memory, now hlc.Timestamp) {
	last := ""
	for _, span := range m.Spans() {
		if string(span.Start) < last || string(span.End) <= string(span.Start) {
			t.Fatalf("spans overlap: %+v", m.Spans())
		}
		last = string(span.End)
		for _, at := range []hlc.Timestamp{span.Since, now} {
			if at.Less(span.Since) {
				continue
			}
			result, err := Count(s, ScanOptions{Span: keys.Span{Start: span.Start, End: span.End}, At: at,
				Uncertain: Limits{Versions: now}})
			if err != nil && at == now || result.Rows > 0 {
				t.Fatalf("at %s the span %+v is not vacant: %+v, %v", at, span, result, err)
			}
		}
	}
}
