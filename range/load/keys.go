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
	// leastRequests is how many requests a window must have seen for its verdict to name keys.
	leastRequests = 100
	// hotFrom is the part of the load, in thousandths, from which a key counts as hot.
	hotFrom = 100
	// edgeAge is the age at which written keys count for the edge beyond which writes are
	// ascending. Concurrent writers write in any order.
	edgeAge = time.Second
)

// Sample is a sampled request, with user keys.
type Sample struct {
	// First and Last are the lowest and the highest of its keys, equal for one key. If Span is set,
	// the request covers the span from First to before Last, and an empty Last means no end.
	First, Last []byte
	Span        bool
	// Weight is the request's cost, at least 1, times the number of requests that it stands for.
	Weight uint64
	Write  bool
	At     time.Time
}

// Cover extends a sample by a key; if some is false, the sample was empty.
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

// CoverSpan extends a sample by a span; an empty end means no end.
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

// Split is a key to split at, and the parts of the load left of it, right of it, and on both sides,
// in thousandths. Load on the key itself counts as right.
type Split struct {
	Key                 []byte
	Left, Right, Across int
}

// keeps returns the load that the larger side keeps.
func (s *Split) keeps() int { return max(s.Left, s.Right) + s.Across }

// Verdict is the result of a window.
type Verdict struct {
	// Requests counts the sampled requests. If they are too few, the other fields are zero.
	Requests int
	// Best is the best key; nil if none is within the partition.
	Best *Split
	// HotKey is the key with the most load, and Hot its part in thousandths; nil if no key has a
	// tenth.
	HotKey []byte
	Hot    int
	// Ascending is the part of the writes, in thousandths, beyond all keys that existed a second
	// before.
	Ascending int
}

// judged is a key that was drawn in the window before, with the distribution of the present
// window's load around it.
type judged struct {
	key []byte
	// below and above count requests wholly left and right of the key; on those of the key alone;
	// from those that begin at the key and go on; across those that begin left of it and do not end
	// left of it.
	below, on, from, above, across uint64
}

// Keys samples the requests of one partition. The zero value is ready, and deterministic. It is
// safe for concurrent use; a request that comes while another one is being noted is skipped.
type Keys struct {
	mu struct {
		sync.Mutex
		random rand.PCG
		// pool holds the drawn keys, weight the total weight seen while they were drawn.
		pool   [][]byte
		weight uint64
		// judging holds the keys that are judged, total the weight seen meanwhile, in so many
		// requests.
		judging  []judged
		total    uint64
		requests int
		// edge is above all keys written more than edgeAge ago. highest is the highest key seen,
		// and moved when edge was last set to it. writes and ascending are counts.
		edge, highest     []byte
		moved             time.Time
		writes, ascending uint64
	}
}

// Note adds a request.
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

// note counts a request for a judged key.
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

// drawLocked draws the request's key, with a probability by its part of the weight so far; of
// several keys it draws either end.
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

// Turn ends a window, and returns its verdict for a partition with a span of user keys. end is the
// partition's last existing key, nil if it is empty.
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

// bestLocked returns the best and the hottest of the judged keys.
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
