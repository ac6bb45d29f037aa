package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// sampled feeds requests to Keys for two windows, and returns what the second one has shown.
func sampled(requests int, request func(i int) Sample) Verdict {
	var k Keys
	now := time.Unix(10_000, 0)
	var v Verdict
	i := 0
	for range 2 {
		for range requests {
			s := request(i)
			if s.Last == nil && !s.Span {
				s.Last = s.First
			}
			i++
			now = now.Add(20 * time.Second / time.Duration(requests))
			s.At = now
			k.Note(s)
		}
		v = k.Turn(all, []byte("key09999"))
	}
	return v
}

var all = keys.Span{Start: []byte("a"), End: []byte("z")}

func key(i int) []byte { return fmt.Appendf(nil, "key%05d", i) }

// Even load is divided in the middle.
func TestEven(t *testing.T) {
	v := sampled(2000, func(int) Sample { return Sample{First: key(rand.IntN(10_000))} })
	if v.Best == nil || v.Best.Left < 400 || v.Best.Left > 600 || v.Best.Across != 0 || v.Hot != 0 {
		t.Fatalf("%+v, %+v", v, v.Best)
	}
}

// What is judged is what comes, not what was: the key divides the load of the window in which it
// is judged.
func TestJudgedOnWhatComes(t *testing.T) {
	v := sampled(2000, func(i int) Sample {
		if i < 2000 {
			return Sample{First: key(rand.IntN(1000))}
		}
		return Sample{First: key(5000 + rand.IntN(1000))}
	})
	if v.Best == nil || v.Best.Right != 1000 {
		t.Fatalf("%+v, %+v", v, v.Best)
	}
}

// One hot key is named, and the best that can be done is to part it from the rest.
func TestHotKey(t *testing.T) {
	v := sampled(4000, func(int) Sample {
		if rand.IntN(10) < 6 {
			return Sample{First: key(5000)}
		}
		return Sample{First: key(rand.IntN(10_000))}
	})
	if !bytes.Equal(v.HotKey, key(5000)) || v.Hot < 550 || v.Hot > 650 {
		t.Fatalf("%+v", v)
	}
	if v.Best == nil || v.Best.keeps() < 750 || v.Best.keeps() > 850 {
		t.Fatalf("best %+v", v.Best)
	}
	v = sampled(4000, func(int) Sample { return Sample{First: key(5000)} })
	if v.Hot != 1000 || v.Best.keeps() != 1000 {
		t.Fatalf("one key only: %+v, %+v", v, v.Best)
	}
}

// Both ways of parting a hot key from the rest are looked at: the load beside it is on one side.
func TestHotKeyAtOneEnd(t *testing.T) {
	for _, rest := range []int{1000, 8000} {
		v := sampled(4000, func(int) Sample {
			if rand.IntN(10) < 6 {
				return Sample{First: key(5000)}
			}
			return Sample{First: key(rest + rand.IntN(1000))}
		})
		if v.Best == nil || v.Best.keeps() > 650 {
			t.Errorf("the rest at %d: best %+v", rest, v.Best)
		}
	}
}

// Keys that ascend are recognised, in whatever order those that write at the same time come; and no
// key divides them.
func TestAscending(t *testing.T) {
	next := 10_000
	v := sampled(4000, func(i int) Sample {
		if i%32 == 0 {
			next += 32
		}
		return Sample{First: key(next - rand.IntN(32)), Write: true}
	})
	if v.Ascending < 850 || v.Best == nil || v.Best.Right < 990 {
		t.Fatalf("%+v, %+v", v, v.Best)
	}
	// Those that are written at random, and those that are written in order elsewhere, do not.
	v = sampled(4000, func(int) Sample { return Sample{First: key(rand.IntN(10_000)), Write: true} })
	if v.Ascending > 10 {
		t.Errorf("at random: %+v", v)
	}
	v = sampled(4000, func(i int) Sample { return Sample{First: key(i), Write: true} })
	if v.Ascending > 10 {
		t.Errorf("in the middle: %+v", v)
	}
	v = sampled(4000, func(i int) Sample {
		if i%2 == 0 {
			return Sample{First: key(rand.IntN(10_000))}
		}
		return Sample{First: key(10_000 + i), Write: true}
	})
	if v.Ascending < 850 || v.Best == nil || v.Best.keeps() > 850 {
		t.Errorf("reads of all beside: %+v, %+v", v, v.Best)
	}
}

// What touches both sides counts as across, and a key that few requests touch both sides of is
// better.
func TestAcross(t *testing.T) {
	v := sampled(2000, func(int) Sample {
		from := rand.IntN(5000)
		return Sample{First: key(from), Last: key(from + 5000), Span: true}
	})
	if v.Best == nil || v.Best.keeps() < 900 {
		t.Fatalf("long spans: %+v", v.Best)
	}
	// Two tenants, each of which is scanned as a whole.
	v = sampled(2000, func(int) Sample {
		tenant := rand.IntN(2)
		return Sample{First: key(5000 * tenant), Last: key(5000*tenant + 5000), Span: true}
	})
	if v.Best == nil || v.Best.Across != 0 || v.Best.Left < 400 || v.Best.Left > 600 {
		t.Fatalf("two tenants: %+v", v.Best)
	}
	// Batches of keys of both halves.
	v = sampled(2000, func(int) Sample {
		return Sample{First: key(rand.IntN(5000)), Last: key(5000 + rand.IntN(5000))}
	})
	if v.Best == nil || v.Best.keeps() < 900 {
		t.Fatalf("batches: %+v", v.Best)
	}
}

// What costs more counts for more.
func TestWeight(t *testing.T) {
	v := sampled(4000, func(i int) Sample {
		if i%10 == 0 {
			return Sample{First: key(rand.IntN(1000)), Weight: 90}
		}
		return Sample{First: key(9000 + rand.IntN(1000)), Weight: 1}
	})
	if v.Best == nil || v.Best.keeps() > 650 || bytes.Compare(v.Best.Key, key(1000)) > 0 {
		t.Fatalf("%+v", v.Best)
	}
}

// Keys that the partition does not have, or begins with, are not named, and with few requests none
// is.
func TestWithin(t *testing.T) {
	var k Keys
	narrow := keys.Span{Start: key(100), End: key(101)}
	for range 2 {
		for i := range 2000 {
			k.Note(Sample{First: key(i % 200), Last: key(i % 200)})
		}
		if v := k.Turn(narrow, nil); v.Best != nil && !narrow.Contains(v.Best.Key) {
			t.Fatalf("%+v", v.Best)
		} else if v.Best != nil && bytes.Equal(v.Best.Key, narrow.Start) {
			t.Fatalf("its start: %+v", v.Best)
		}
	}
	if v := sampled(50, func(i int) Sample { return Sample{First: key(i)} }); v.Best != nil {
		t.Errorf("with 50 requests: %+v", v.Best)
	}
	longest := bytes.Repeat([]byte("k"), keys.MaxKeySize)
	v := sampled(2000, func(int) Sample { return Sample{First: longest} })
	if v.Best == nil || keys.ValidateUserKey(v.Best.Key) != nil {
		t.Errorf("the longest key: %+v", v.Best)
	}
}
