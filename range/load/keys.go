package load

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// drawn is how many keys are drawn in a window.
	drawn = 32
	// leastRequests is how many requests a window has to have seen for keys to be named.
	leastRequests = 100
	// hotFrom is from which part of the load on, in thousandths, a key is named as hot.
	hotFrom = 100
	// edgeAge is how old what was written has to be for what is beyond it to be ascending: those that
	// write at the same time do so in any order.
	edgeAge = time.Second
)

// Sample is a sampled request, in user keys.
type Sample struct {
	// First and Last are the lowest and the highest of its keys, the same for one key. If Span is
	// set it is the span from First to before Last, and an empty Last is the end.
	First, Last []byte
	Span        bool
	// Weight is what it counts as, at least 1: what it costs times the requests that it stands for.
	Weight uint64
	Write  bool
	At     time.Time
}

// Cover has a sample, which covers nothing if none is set, cover a key as well.
func (s *Sample) Cover(key []byte, some bool) {
	if !some {
		s.First, s.Last, s.Span = key, key, false
		return
	}
	if bytes.Compare(key, s.First) < 0 {
		s.First = key
	}
	if !s.Span && bytes.Compare(key, s.Last) > 0 ||
		s.Span && len(s.Last) > 0 && bytes.Compare(key, s.Last) >= 0 {
		s.Last, s.Span = key, false
	}
}

// CoverSpan has it cover a span as well; an empty end is the end.
func (s *Sample) CoverSpan(start, end []byte, some bool) {
	if !some {
		s.First, s.Last, s.Span = start, end, true
		return
	}
	if bytes.Compare(start, s.First) < 0 {
		s.First = start
	}
	switch {
	case s.Span && len(s.Last) == 0:
	case len(end) == 0 || bytes.Compare(end, s.Last) > 0:
		s.Last, s.Span = end, true
	}
}

// Split is a key to split at, and the parts of the load left and right of it, and on both sides, in
// thousandths. What is on the key itself is right of it.
type Split struct {
	Key                 []byte
	Left, Right, Across int
}

// keeps is what the larger side has of the load.
func (s *Split) keeps() int { return max(s.Left, s.Right) + s.Across }

// Verdict is what a window has shown.
type Verdict struct {
	// Requests is how many were sampled. With too few nothing else is said.
	Requests int
	// Best is the best key; nil if none is within the partition.
	Best *Split
	// HotKey is the key with the most load, and Hot its part in thousandths; nil if no key has a
	// tenth.
	HotKey []byte
	Hot    int
	// Ascending is the part of the writes, in thousandths, that was beyond all keys that there were
	// a second before.
	Ascending int
}

// judged is a key that was drawn in the window before, and what of the load of this one was where.
type judged struct {
	key []byte
	// below and above are the requests that are wholly left and right of the key; on those of the
	// key alone; from those that begin at it and go on; across those that begin left of it and do
	// not end left of it.
	below, on, from, above, across uint64
}

// Keys samples the requests of one partition. The zero value is ready, and draws the same of the
// same requests. It is safe for use by several goroutines: a request that comes while another one
// is noted is not.
type Keys struct {
	mu struct {
		sync.Mutex
		random rand.PCG
		// pool are the keys that are drawn, weight what was seen while they were.
		pool   [][]byte
		weight uint64
		// judging are those that are judged, total what was seen meanwhile, in so many requests.
		judging  []judged
		total    uint64
		requests int
		// edge is above what was written more than edgeAge before, highest the highest key seen, and
		// moved is when edge was last brought up to it. writes and ascending count.
		edge, highest     []byte
		moved             time.Time
		writes, ascending uint64
	}
}

// Note notes a request.
func (k *Keys) Note(s Sample) {
	if !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	s.Weight = max(s.Weight, 1)
	k.mu.requests++
	k.mu.total += s.Weight
	for i := range k.mu.judging {
		k.mu.judging[i].note(&s)
	}
	k.drawLocked(&s)
	if s.Write {
		k.writeLocked(&s)
	}
}

// note counts a request for a key.
func (j *judged) note(s *Sample) {
	first := bytes.Compare(s.First, j.key)
	last := bytes.Compare(s.Last, j.key)
	if s.Span && len(s.Last) == 0 {
		last = 1
	}
	switch {
	case first > 0:
		j.above += s.Weight
	case last < 0 || s.Span && last == 0:
		j.below += s.Weight
	case first < 0:
		j.across += s.Weight
	case last == 0:
		j.on += s.Weight
	default:
		j.from += s.Weight
	}
}

// drawLocked draws the request's key, by its part of the weight so far; of several keys either end.
func (k *Keys) drawLocked(s *Sample) {
	k.mu.weight += s.Weight
	key := s.First
	if (s.Span && len(s.First) == 0 || k.mu.random.Uint64()&1 == 0) && len(s.Last) > 0 {
		key = s.Last
	}
	switch {
	case len(key) == 0:
	case len(k.mu.pool) < drawn:
		k.mu.pool = append(k.mu.pool, bytes.Clone(key))
	default:
		if k.mu.random.Uint64()%k.mu.weight < drawn*s.Weight {
			at := k.mu.random.Uint64() % drawn
			k.mu.pool[at] = append(k.mu.pool[at][:0], key...)
		}
	}
}

func (k *Keys) writeLocked(s *Sample) {
	if s.At.Sub(k.mu.moved) >= edgeAge {
		k.mu.moved = s.At
		k.mu.edge = append(k.mu.edge[:0], k.mu.highest...)
	}
	k.mu.writes += s.Weight
	if bytes.Compare(s.First, k.mu.edge) > 0 {
		k.mu.ascending += s.Weight
	}
	if bytes.Compare(s.Last, k.mu.highest) > 0 {
		k.mu.highest = append(k.mu.highest[:0], s.Last...)
	}
}

// Turn ends a window, and says what it has shown of a partition with a span of user keys. end is
// the last key that there is in the partition, nil if it is empty.
func (k *Keys) Turn(span keys.Span, end []byte) Verdict {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := Verdict{Requests: k.mu.requests}
	if v.Requests >= leastRequests {
		v.Best, v.HotKey, v.Hot = k.bestLocked(span)
		if k.mu.writes > 0 {
			v.Ascending = int(1000 * k.mu.ascending / k.mu.writes)
		}
	}
	slices.SortFunc(k.mu.pool, bytes.Compare)
	k.mu.judging = k.mu.judging[:0]
	for i, key := range k.mu.pool {
		if i == 0 || !bytes.Equal(key, k.mu.pool[i-1]) {
			k.mu.judging = append(k.mu.judging, judged{key: key})
		}
	}
	k.mu.pool, k.mu.weight = nil, 0
	k.mu.requests, k.mu.total, k.mu.writes, k.mu.ascending = 0, 0, 0, 0
	k.mu.highest = append(k.mu.highest[:0], end...)
	k.mu.edge = append(k.mu.edge[:0], end...)
	return v
}

// bestLocked is the best of the keys that were judged, and the hottest.
func (k *Keys) bestLocked(span keys.Span) (best *Split, hotKey []byte, hot int) {
	total := k.mu.total
	part := func(n uint64) int { return int((1000*n + total/2) / total) }
	offer := func(key []byte, left, across uint64) {
		if !span.Contains(key) || bytes.Equal(key, span.Start) || keys.ValidateUserKey(key) != nil {
			return
		}
		s := &Split{Key: key, Left: part(left), Across: part(across)}
		s.Right = max(0, 1000-s.Left-s.Across)
		if best == nil || s.keeps() < best.keeps() ||
			s.keeps() == best.keeps() && s.Across < best.Across {
			best = s
		}
	}
	for i := range k.mu.judging {
		j := &k.mu.judging[i]
		offer(j.key, j.below, j.across)
		offer(keys.Next(j.key), j.below+j.on, j.across+j.from)
		if p := part(j.on); p >= hotFrom && p > hot {
			hotKey, hot = bytes.Clone(j.key), p
		}
	}
	if best != nil {
		best.Key = bytes.Clone(best.Key)
	}
	return best, hotKey, hot
}
