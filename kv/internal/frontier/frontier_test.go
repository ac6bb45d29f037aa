package frontier

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// domain are the keys of the model, in order; bounds are those of them at which parts may begin.
// The key "a\x00" is the next one after "a", and "a\x01" stands for all between that and "b".
var domain, bounds = func() (all, bounds []string) {
	for c := 'a'; c <= 'h'; c++ {
		all = append(all, string(c), string(c)+"\x00", string(c)+"\x01")
		bounds = append(bounds, string(c), string(c)+"\x00")
	}
	return all, bounds
}()

// model is what is known of each key, key by key. Where there is none, the feed has no such key.
type model map[string]hlc.Timestamp

// TestAgainstModel: however partitions split and merge, and whichever part of what was asked an
// answer has, the frontier knows of each key what was told of it, and no more; and the least of
// that is its minimum.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom(bounds)
		timestamp := rapid.Custom(func(t *rapid.T) hlc.Timestamp {
			return hlc.Timestamp{Wall: rapid.Int64Range(1, 9).Draw(t, "at")}
		})
		known := model{}
		var spans []keys.Span
		for _, s := range []keys.Span{{Start: []byte("a"), End: []byte("d")},
			{Start: []byte("d"), End: []byte("f")}, {Start: []byte("g"), End: []byte("h")}} {
			if rapid.Bool().Draw(t, "has span") {
				spans = append(spans, s)
			}
		}
		f := New(hlc.Timestamp{Wall: 1}, spans...)
		for _, k := range domain {
			if slices.ContainsFunc(spans, func(s keys.Span) bool { return s.Contains([]byte(k)) }) {
				known[k] = hlc.Timestamp{Wall: 1}
			}
		}
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0:
				at := []byte(key.Draw(t, "cut"))
				parts := f.Len()
				if cut := f.Cut(at); cut != (f.Len() == parts+1) || cut && f.At(at) == nil {
					t.Fatalf("cut at %q: %t, of %d parts %v", at, cut, parts, f.parts)
				}
			case 1:
				f.Join(drawSpan(t, key))
			case 2: // ask
				if f.Len() > 0 {
					p := &f.parts[rapid.IntRange(0, f.Len()-1).Draw(t, "part")]
					f.At(p.Span.Start).Asked = true
				}
			case 3:
				to := timestamp.Draw(t, "back to")
				f.Back(to)
				for k, at := range known {
					known[k] = hlc.Min(at, to)
				}
			default:
				answer(t, f, known, key, timestamp)
			}
			check(t, f, known)
		}
	})
}

func drawSpan(t *rapid.T, key *rapid.Generator[string]) keys.Span {
	span := keys.Span{Start: []byte(key.Draw(t, "start"))}
	if rapid.Bool().Draw(t, "bounded") {
		span.End = []byte(key.Draw(t, "end"))
	}
	return span
}

// answer has a part answered: all of it, up to a key, or up to a version of a key.
func answer(t *rapid.T, f *Frontier, known model, key *rapid.Generator[string],
	timestamp *rapid.Generator[hlc.Timestamp]) {
	if f.Len() == 0 {
		return
	}
	p := f.parts[rapid.IntRange(0, f.Len()-1).Draw(t, "part")]
	end, resolved := p.Span.End, timestamp.Draw(t, "resolved")
	if rapid.Bool().Draw(t, "partly") {
		end = []byte(key.Draw(t, "up to"))
	}
	tell := func(k string, at hlc.Timestamp) {
		if p.Span.Contains([]byte(k)) {
			known[k] = hlc.Max(known[k], at)
		}
	}
	f.Advance(p.Span.Start, end, resolved)
	for _, k := range domain {
		if k < string(end) {
			tell(k, resolved)
		}
	}
	if rest := f.At(end); rest != nil && p.Span.Contains(end) &&
		rapid.Bool().Draw(t, "within a key") {
		version := timestamp.Draw(t, "version")
		f.AdvanceKey(end, version)
		tell(string(end), version)
	}
	if q := f.At(p.Span.Start); q == nil || q.Asked {
		t.Fatalf("%v is asked after its answer", q)
	}
}

func check(t *rapid.T, f *Frontier, known model) {
	got := model{}
	for i, p := range f.parts {
		if p.Span.Empty() || len(p.Span.End) == 0 || i > 0 &&
			bytes.Compare(f.parts[i-1].Span.End, p.Span.Start) > 0 {
			t.Fatalf("part %d of %v", i, f.parts)
		}
		if !p.Head.IsZero() && p.Head.LessEq(p.Resolved) {
			t.Fatalf("the head of %v tells nothing", p)
		}
		for _, k := range domain {
			if p.Span.Contains([]byte(k)) {
				got[k] = p.Resolved
			}
		}
		got[string(p.Span.Start)] = hlc.Max(p.Resolved, p.Head)
	}
	if fmt.Sprint(got) != fmt.Sprint(known) {
		t.Fatalf("got %v, want %v, in %v", got, known, f.parts)
	}
	var least hlc.Timestamp
	for _, at := range known {
		if least.IsZero() || at.Less(least) {
			least = at
		}
	}
	if f.Min() != least {
		t.Fatalf("the minimum is %s, want %s, in %v", f.Min(), least, f.parts)
	}
	for _, k := range domain {
		within := f.Within(keys.Span{Start: []byte(k), End: append([]byte(k), 0)})
		if _, has := known[k]; has != (len(within) == 1) {
			t.Fatalf("%q is in %v", k, within)
		}
	}
}

// TestJoinLeavesOneForEachPartition: parts that have come to the same timestamp are one, up to the
// bounds of what is joined; and not those that are asked.
func TestJoinLeavesOneForEachPartition(t *testing.T) {
	f := New(hlc.Timestamp{Wall: 1}, keys.Span{Start: []byte("a"), End: []byte("z")})
	for _, k := range []string{"c", "e", "g", "i"} {
		f.Cut([]byte(k))
	}
	f.At([]byte("e")).Asked = true
	f.Join(keys.Span{Start: []byte("a"), End: []byte("i")})
	var got []string
	for _, p := range f.parts {
		got = append(got, string(p.Span.Start)+"-"+string(p.Span.End))
	}
	if want := []string{"a-e", "e-g", "g-i", "i-z"}; !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
}
