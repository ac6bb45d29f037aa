package timing

import (
	"sync"
	"time"
)

// maxSegments bounds the segments of a Request. A request that goes over into more parts, because
// it meets lock after lock, has the time of the others in Spent only.
const maxSegments = 16

// Request has the times of one request.
type Request struct {
	began time.Time
	// part is the part in which the request is, and at the time since began when it entered the part.
	part Part
	at   time.Duration
	// spent is the time in each part, without the present one.
	spent    [Parts]time.Duration
	segments [maxSegments]Segment
	count    int
	blocked  Blocked
}

// Segment is a time without interruption in one part.
type Segment struct {
	Part Part
	// From and To are times since the request began.
	From, To time.Duration
}

// Blocked is what a request waited for last: a key, and the transaction that had its lock.
type Blocked struct{ Key, Transaction string }

var requests = sync.Pool{New: func() any { return new(Request) }}

// Start returns the timing of a request that has arrived at a time, which has a monotonic reading.
// The request is in the queue. Release gives the timing back.
func Start(arrived time.Time) *Request {
	r := requests.Get().(*Request)
	r.began = arrived
	return r
}

// Release gives the timing back, for another request.
func (r *Request) Release() {
	if r == nil {
		return
	}
	// The segments are not cleared: count says how many there are.
	r.part, r.at, r.spent, r.count, r.blocked = Queue, 0, [Parts]time.Duration{}, 0, Blocked{}
	requests.Put(r)
}

// Began returns when the request arrived.
func (r *Request) Began() time.Time { return r.began }

// Enter notes that the request goes over into a part, now.
func (r *Request) Enter(p Part) {
	if r != nil && r.part != p {
		r.enter(p, time.Since(r.began))
	}
}

// EnterAt is Enter at a time, which has a monotonic reading. A zero time does nothing.
func (r *Request) EnterAt(p Part, now time.Time) {
	if r != nil && r.part != p && !now.IsZero() {
		r.enter(p, now.Sub(r.began))
	}
}

func (r *Request) enter(p Part, now time.Duration) {
	now = max(now, r.at)
	if now > r.at {
		r.spent[r.part] += now - r.at
		if r.count < maxSegments {
			r.segments[r.count] = Segment{r.part, r.at, now}
			r.count++
		}
	}
	r.part, r.at = p, now
}

// Block notes what the request waits for. The strings are the caller's copies.
func (r *Request) Block(by Blocked) {
	if r != nil {
		r.blocked = by
	}
}

// Blocked returns what the request waited for last.
func (r *Request) Blocked() Blocked { return r.blocked }

// Total ends the present part now, and returns the time since the request began.
func (r *Request) Total() time.Duration {
	r.enter(r.part, time.Since(r.began))
	return r.at
}

// Elapsed returns the time from the begin of the request up to the last call of Enter or Total.
func (r *Request) Elapsed() time.Duration { return r.at }

// Spent returns the time in a part, up to the last call of Enter or Total.
func (r *Request) Spent(p Part) time.Duration { return r.spent[p] }

// Segments returns the first segments, in their order, at most 16. The slice is valid until
// Release.
func (r *Request) Segments() []Segment { return r.segments[:r.count] }
