package spans

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Whatever spans come and go, a key is in the entries that a look at all of them finds.
func TestIndexAgainstList(t *testing.T) {
	some := []string{"", "\x00", "a", "a\x00", "a\x00\x00", "ab", "b", "b\xff", "c", "\xff",
		"\xff\xff"}
	rapid.Check(t, func(t *rapid.T) {
		x := New[int]()
		naive := map[string]keys.Span{}
		key := rapid.SampledFrom(some)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0, 1:
				s := keys.Span{Start: []byte(key.Draw(t, "start")), End: []byte(key.Draw(t, "end"))}
				if rapid.IntRange(0, 2).Draw(t, "point") == 0 {
					s = keys.Point(s.Start)
				}
				if s.Empty() {
					continue
				}
				if e := x.Entry(s); e.Value == 0 {
					if _, there := naive[s.String()]; there {
						t.Fatalf("%v was there, and has a new entry", s)
					}
					e.Value = 1
				}
				naive[s.String()] = s.Clone()
			case 2:
				if len(naive) > 0 {
					names := make([]string, 0, len(naive))
					for name := range naive {
						names = append(names, name)
					}
					slices.Sort(names)
					name := rapid.SampledFrom(names).Draw(t, "span")
					x.Delete(x.Entry(naive[name]))
					delete(naive, name)
				}
			case 3:
				at := []byte(key.Draw(t, "key"))
				var got, want []string
				x.Visit(at, func(e *Entry[int]) {
					s := keys.Span{Start: []byte(e.start), End: []byte(e.end)}
					if !e.Contains(at) {
						t.Fatalf("%v does not hold %q", s, at)
					}
					got = append(got, s.String())
				})
				for name, s := range naive {
					if s.Contains(at) {
						want = append(want, name)
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%q is in %v, want %v", at, got, want)
				}
			}
			x.root.checkInvariants()
			if x.Len() != len(naive) {
				t.Fatalf("%d spans, want %d", x.Len(), len(naive))
			}
		}
	})
}

func (n *node[V]) depth() int {
	if n == nil {
		return 0
	}
	return 1 + max(n.left.depth(), n.right.depth())
}

// Spans that come in order do not make a deep tree.
func TestTreeIsShallow(t *testing.T) {
	x := New[int]()
	const many = 20_000
	for i := range many {
		x.Entry(keys.PrefixSpan(fmt.Appendf(nil, "%08d", i)))
	}
	if d := x.root.depth(); d > 80 {
		t.Errorf("%d spans are %d deep", many, d)
	}
}
