package clockhealth

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naiveOffset keeps every measurement, and the window that each was made in.
type naiveOffset struct {
	windowEnd int64
	samples   []naiveSample
}

type naiveSample struct {
	window int64 // its end
	offset int64
}

// at begins a new window if the present one is over. The samples of the window before are those of
// the one that has just ended, and none if that was over for a whole window.
func (n *naiveOffset) at(now int64) {
	if now < n.windowEnd {
		return
	}
	kept := n.samples[:0]
	for _, s := range n.samples {
		if s.window == n.windowEnd && now < n.windowEnd+int64(window) {
			kept = append(kept, s)
		}
	}
	n.samples = kept
	n.windowEnd = now + int64(window)
}

func (n *naiveOffset) offset(now int64) (best int64, known bool) {
	n.at(now)
	for i, s := range n.samples {
		if i == 0 || s.offset > best {
			best = s.offset
		}
	}
	return best, len(n.samples) >= leastSamples
}

// TestOffsetsModel compares the measurements of a peer with the naive ones.
func TestOffsetsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const peer = 7
		var o offsets
		o.init(int64(testLimit))
		now := int64(time.Hour)
		var naive *naiveOffset
		t.Repeat(map[string]func(*rapid.T){
			"passes": func(t *rapid.T) {
				now += int64(
					rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 5000)).Draw(t, "ms"),
				) * int64(
					time.Millisecond,
				)
			},
			"ping": func(t *rapid.T) {
				offset := rapid.Int64Range(-1e9, 1e9).Draw(t, "offset")
				if naive == nil {
					naive = &naiveOffset{windowEnd: now + int64(window)}
				}
				naive.at(now)
				naive.samples = append(naive.samples, naiveSample{naive.windowEnd, offset})
				o.measure(peer, offset, now)
			},
			"shift": func(t *rapid.T) {
				by := rapid.Int64Range(-1e9, 1e9).Draw(t, "by")
				o.shift(time.Duration(by))
				if naive != nil {
					for i := range naive.samples {
						naive.samples[i].offset -= by
					}
				}
			},
			"forget": func(*rapid.T) {
				o.forget()
				naive = nil
			},
			"": func(t *rapid.T) {
				var want int64
				known := false
				if naive != nil {
					want, known = naive.offset(now)
				}
				if got, ok := o.of(peer, now); ok != known || (ok && got != want) {
					t.Fatalf("offset %d, known %t; want %d, %t", got, ok, want, known)
				}
				if got, ok := o.known(now)[peer]; ok != known || (ok && int64(got) != want) {
					t.Fatalf("in the list: %d, known %t; want %d, %t", got, ok, want, known)
				}
				if naive != nil && len(naive.samples) == 0 {
					if len(o.peers) != 0 {
						t.Fatal("a silent peer is remembered")
					}
					naive = nil // the next window begins with the next ping
				}
			},
		})
	})
}
