package workqueue

import (
	"container/heap"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Priority is how urgent a request is among those of its tenant.
type Priority uint8

const (
	// Normal is the priority of a request that names none.
	Normal Priority = iota
	// High requests go before the others of their tenant.
	High
	// Low requests wait until no other request waits, but for one request in 32.
	Low

	// Priorities is the number of priorities.
	Priorities
)

// String returns the name of the priority, as metrics show it.
func (p Priority) String() string {
	switch p {
	case Normal:
		return "normal"
	case High:
		return "high"
	case Low:
		return "low"
	}
	return "unknown"
}

// Tenant is who asks: a user and a keyspace. Each tenant has the same share of a node.
type Tenant struct {
	User     string
	Keyspace uint64
}

// Config configures a Queue.
type Config struct {
	// Short reports whether goroutines had to wait for a processor since it was called last. It is
	// called once in LookEvery at most, with the lock of the queue held.
	Short func() bool
	// LookEvery is the time between two looks at Short. Default: 20 ms.
	LookEvery time.Duration
	// Least and Most bound the limit. Defaults: 128 and 8192. A busy server always has goroutines that
	// wait, so its limit is Least. With fewer requests at work, few share a log entry, a sync and a
	// message, and each request costs more: with 16 a server answers half as many as with 128.
	Least, Most int
	// MaxWaiting bounds the requests in the queue. Default: 16384.
	MaxWaiting int
	// Longest is how long the first request of a tenant and priority may have waited when another
	// one is let in. Default: 500 ms.
	Longest time.Duration
}

const (
	// granted is the number of requests that each tenant may have in the queue, whatever its share.
	granted = 16
	// mostPassed is how many requests begin before one of low priority, so that none waits for ever.
	mostPassed = 31
	// maxTenants bounds the tenants that have a place of their own.
	maxTenants = 4096
)

// ErrClosed is the error of Add when the queue is closed.
var ErrClosed = errors.New("the queue is closed")

// FullError is the error of Add when the tenant has too much in the queue.
type FullError struct {
	// Waiting is the number of the tenant's requests in the queue, and Wait is how long the first of
	// them has waited: a request that comes later is likely to wait as long.
	Waiting int
	Wait    time.Duration
}

func (e *FullError) Error() string {
	return fmt.Sprintf("requests of the same user and keyspace wait to begin: %d, the first of them "+
		"for %s", e.Waiting, e.Wait.Round(time.Millisecond))
}

// Share is the place of a tenant in the queue. Its fields belong to the queue.
type Share struct {
	tenant     Tenant
	background bool
	// common: tenants without a place of their own have had requests here.
	common bool
	// spent is the cost of what the tenant was given, in the virtual time of the queue.
	spent time.Duration
	// waiting are the requests, by urgency: the first list goes first.
	waiting [2]list
	// emptied is when the tenant had nothing left in the queue.
	emptied time.Time
	// position is the index in the heap, -1: the tenant has nothing in the queue.
	position int
}

func (s *Share) len() int { return s.waiting[0].len() + s.waiting[1].len() }

// oldest returns when the request came that has waited longest.
func (s *Share) oldest() time.Time {
	first, second := s.waiting[0].front(), s.waiting[1].front()
	switch {
	case first == nil && second == nil:
		return time.Time{}
	case first == nil || second != nil && second.came.Before(first.came):
		return second.came
	}
	return first.came
}

// Item is a request that was taken out of the queue.
type Item[T any] struct {
	Request T
	// Share is the place of the request's tenant, for Charge.
	Share *Share
	// Began is for Leave.
	Began Began
	// Waited is how long the request was in the queue.
	Waited time.Duration
}

// entry is a request in the queue.
type entry struct {
	request any
	cost    time.Duration
	came    time.Time
}

// Queue is a queue of requests. Safe for concurrent use.
//
// Requests that need not wait take no lock: they read queued and whole, and count in working. A
// request that reads queued as 0 comes after all requests that were added before it, because queued
// counts them until they have begun.
type Queue[T any] struct {
	config Config
	// epoch is when the queue was made. Looks are timed by the monotonic clock.
	epoch time.Time
	// working counts the requests at work, and peak is the most of them since the last look. queued
	// counts those that wait, and those that were taken and have not begun. whole is the limit.
	// looked is when Short was asked last, in nanoseconds after epoch.
	working       working
	peak, queued  atomic.Int64
	whole, looked atomic.Int64

	mu struct {
		sync.Mutex
		limit limit
		// taken counts the requests of Take for which Taken has not been called.
		taken   int
		waiting [Priorities]int
		shares  map[shareKey]*Share
		// foreground and background are the shares with requests in the queue. virtual is the virtual
		// time of each: what the share had spent that was served last.
		foreground, background shares
		virtual                [2]time.Duration
		// passed counts the requests that have begun since one of low priority began, while such waited.
		passed int
		closed bool
	}
}

type shareKey struct {
	tenant     Tenant
	background bool
}

// New makes an empty queue.
func New[T any](c Config) *Queue[T] {
	if c.LookEvery <= 0 {
		c.LookEvery = 20 * time.Millisecond
	}
	if c.Least <= 0 {
		c.Least = 128
	}
	if c.Most <= 0 {
		c.Most = 8192
	}
	if c.MaxWaiting <= 0 {
		c.MaxWaiting = 16384
	}
	if c.Longest <= 0 {
		c.Longest = 500 * time.Millisecond
	}
	q := &Queue[T]{config: c, epoch: time.Now()}
	q.looked.Store(math.MinInt64 / 2)
	most := max(c.Most, c.Least)
	q.mu.limit = limit{least: float64(c.Least), most: float64(most), value: float64(most)}
	q.whole.Store(int64(most))
	q.mu.shares = make(map[shareKey]*Share)
	return q
}

// Enter begins n requests, if they need not wait. low of them have a low priority. Leave is called
// for each of them later.
func (q *Queue[T]) Enter(n, low int, now time.Time) (_ Began, ok bool) {
	if q.lookDue(now) {
		q.mu.Lock()
		q.lookLocked(now)
		q.mu.Unlock()
	}
	if q.queued.Load() > 0 {
		return 0, false
	}
	// One message of a node that does nothing else begins, however many requests it has.
	limit := q.whole.Load()
	if low > 0 {
		limit = lowPart(limit)
	}
	if working := q.working.total(); working > 0 && working+int64(n) > limit {
		return 0, false
	}
	return q.EnterAlways(n), true
}

// lowPart is the part of a limit that requests of low priority may use.
func lowPart(limit int64) int64 { return max(limit/2, 1) }

// EnterAlways begins n requests that do not wait: others wait for them, or they take no time.
func (q *Queue[T]) EnterAlways(n int) Began {
	began := q.working.begin(int64(n))
	if working := q.working.total(); working > q.peak.Load() {
		q.peak.Store(working)
	}
	return began
}

// Leave ends n requests that began together. more says that requests wait that may begin now.
func (q *Queue[T]) Leave(began Began, n int) (more bool) {
	q.working.end(began, int64(n))
	if q.queued.Load() == 0 {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.nextLocked() != nil
}

// Add has a request wait. cost is what the request costs, as far as is known.
func (q *Queue[T]) Add(request T, tenant Tenant, p Priority, cost time.Duration,
	now time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return ErrClosed
	}
	s := q.shareLocked(tenant, p == Low)
	waiting, all := s.len(), q.waitingLocked()
	if all >= q.config.MaxWaiting || waiting >= granted && waiting >= q.config.MaxWaiting-all {
		return q.fullLocked(s, now)
	}
	l := &s.waiting[urgency(p)]
	if first := l.front(); first != nil && now.Sub(first.came) > q.config.Longest {
		return q.fullLocked(s, now)
	}
	l.push(&entry{request: request, cost: max(cost, 0), came: now})
	q.mu.waiting[p]++
	q.queued.Add(1)
	if s.position < 0 {
		// A tenant that comes back has no claim to work of the time in which it asked for nothing, and
		// what it was given before that time weighs the less, the longer that time was.
		s.spent = max(s.spent-max(0, now.Sub(s.emptied)), q.mu.virtual[class(s.background)])
		heap.Push(q.sharesOf(s.background), s)
	}
	return nil
}

func (q *Queue[T]) fullLocked(s *Share, now time.Time) error {
	e := &FullError{Waiting: s.len()}
	if oldest := s.oldest(); !oldest.IsZero() {
		e.Wait = max(0, now.Sub(oldest))
	}
	return e
}

// urgency is the list of a share in which requests of a priority wait.
func urgency(p Priority) int {
	if p == High {
		return 0
	}
	return 1
}

func class(background bool) int {
	if background {
		return 1
	}
	return 0
}

// shareLocked returns the place of a tenant. A tenant without a place of its own gets none while
// requests wait in the common place: some of these may be the tenant's, and keep their order.
func (q *Queue[T]) shareLocked(tenant Tenant, background bool) *Share {
	key, common := shareKey{tenant, background}, shareKey{background: background}
	if s := q.mu.shares[key]; s != nil {
		return s
	}
	if s := q.mu.shares[common]; s != nil && s.common && s.len() > 0 {
		return s
	}
	if len(q.mu.shares) >= maxTenants {
		for other, s := range q.mu.shares {
			if s.position < 0 && s.spent <= q.mu.virtual[class(s.background)] {
				delete(q.mu.shares, other)
			}
		}
		if len(q.mu.shares) >= maxTenants {
			s := q.mu.shares[common]
			if s == nil {
				s = &Share{background: background, position: -1}
				q.mu.shares[common] = s
			}
			s.common = true
			return s
		}
	}
	s := &Share{tenant: key.tenant, background: background, position: -1}
	q.mu.shares[key] = s
	return s
}

// Take takes out up to most requests that may begin now, in their order. The caller begins them in
// this order, and calls Taken then. Until that no request begins without having waited.
func (q *Queue[T]) Take(most int, now time.Time) (items []Item[T]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookLocked(now)
	for len(items) < most {
		s := q.nextLocked()
		if s == nil {
			break
		}
		list := 0
		if s.waiting[0].len() == 0 {
			list = 1
		}
		l, p := &s.waiting[list], priorityIn(s, list)
		if q.mu.passed++; s.background || len(q.mu.background) == 0 {
			q.mu.passed = 0
		}
		e := l.pop()
		q.mu.waiting[p]--
		q.mu.virtual[class(s.background)] = max(q.mu.virtual[class(s.background)], s.spent)
		s.spent += e.cost
		q.changedLocked(s, now)
		q.mu.taken++
		items = append(items, Item[T]{Request: e.request.(T), Share: s, Began: q.EnterAlways(1),
			Waited: now.Sub(e.came)})
	}
	return items
}

// changedLocked puts a share in its place after requests were taken out.
func (q *Queue[T]) changedLocked(s *Share, now time.Time) {
	of := q.sharesOf(s.background)
	if s.len() > 0 {
		heap.Fix(of, s.position)
		return
	}
	heap.Remove(of, s.position)
	s.emptied = now
}

// Expire takes out the requests that wait and are over, for the caller to answer: they do not begin.
func (q *Queue[T]) Expire(over func(T) bool, now time.Time) (out []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range q.mu.shares {
		before := len(out)
		for i := range s.waiting {
			s.waiting[i].remove(func(e *entry) bool {
				r := e.request.(T)
				if !over(r) {
					return false
				}
				out = append(out, r)
				q.mu.waiting[priorityIn(s, i)]--
				return true
			})
		}
		if len(out) > before {
			q.changedLocked(s, now)
		}
	}
	q.queued.Add(-int64(len(out)))
	return out
}

// priorityIn is the priority of the requests in a list of a share.
func priorityIn(s *Share, list int) Priority {
	switch {
	case s.background:
		return Low
	case list == 0:
		return High
	}
	return Normal
}

// Taken says that n requests that were taken have begun.
func (q *Queue[T]) Taken(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.taken -= n
	q.queued.Add(-int64(n))
}

// Charge adds to the work that the tenant of a share was given: cost is the part of a request's
// cost that Add did not know, as it was measured, and most is what such a request costs at most. The
// time that is measured beyond most was a wait for a processor or a disk. If such waits counted, a
// pause of the process would put a tenant within its share behind all others.
func (q *Queue[T]) Charge(s *Share, cost, most time.Duration) {
	if cost <= 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.spent += min(cost, most)
	if s.position >= 0 {
		heap.Fix(q.sharesOf(s.background), s.position)
	}
}

// nextLocked returns the share whose request begins next; nil if none may begin.
func (q *Queue[T]) nextLocked() *Share {
	working, limit := q.working.total(), q.whole.Load()
	foreground, background := len(q.mu.foreground) > 0, len(q.mu.background) > 0
	switch {
	case q.mu.closed || !foreground && !background:
		return nil
	case foreground && (!background || q.mu.passed < mostPassed):
		if working < limit {
			return q.mu.foreground[0]
		}
	case working < lowPart(limit) || foreground && working < limit:
		return q.mu.background[0]
	}
	return nil
}

func (q *Queue[T]) sharesOf(background bool) *shares {
	if background {
		return &q.mu.background
	}
	return &q.mu.foreground
}

func (q *Queue[T]) waitingLocked() (n int) {
	for _, of := range q.mu.waiting {
		n += of
	}
	return n
}

// lookDue reports that it is time to look at Short.
func (q *Queue[T]) lookDue(now time.Time) bool {
	return int64(now.Sub(q.epoch))-q.looked.Load() >= int64(q.config.LookEvery)
}

// lookLocked looks at Short, if it is time.
func (q *Queue[T]) lookLocked(now time.Time) {
	if !q.lookDue(now) {
		return
	}
	q.looked.Store(int64(now.Sub(q.epoch)))
	q.working.pass()
	peak := int(q.peak.Swap(q.working.total()))
	// With the least at work there is nothing to find out.
	if peak > q.config.Least || !q.mu.limit.open() {
		q.mu.limit.adjust(q.config.Short(), peak)
		q.whole.Store(int64(q.mu.limit.value))
	}
}

// Close takes out all requests that wait, for the caller to refuse. Nothing is let in afterwards.
func (q *Queue[T]) Close() (left []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	for _, s := range q.mu.shares {
		for i := range s.waiting {
			for s.waiting[i].len() > 0 {
				left = append(left, s.waiting[i].pop().request.(T))
			}
		}
		s.position = -1
	}
	q.queued.Add(-int64(len(left)))
	q.mu.foreground, q.mu.background, q.mu.waiting = nil, nil, [Priorities]int{}
	return left
}

// Figures are numbers of requests, and the limit.
type Figures struct {
	// Limit is the number of requests that may be at work, Working the number that is: those that
	// began within the last looks at the limit and are not answered.
	Limit, Working int
	// Waiting counts the requests in the queue by priority.
	Waiting [Priorities]int
}

// Total is the number of requests in the queue.
func (f Figures) Total() (n int) {
	for _, of := range f.Waiting {
		n += of
	}
	return n
}

// Figures returns the present numbers.
func (q *Queue[T]) Figures() Figures {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Figures{Limit: int(q.whole.Load()), Working: int(q.working.total()),
		Waiting: q.mu.waiting}
}

// limit is how many requests may be at work. The lock of the queue guards it.
type limit struct{ least, most, value float64 }

const (
	// falls and rises are the parts by which the limit changes at a look.
	falls = 0.9
	rises = 1.0 / 16
)

// open says that the limit is as high as it can be.
func (l *limit) open() bool { return l.value >= l.most }

// adjust changes the limit after a look. short: goroutines had to wait for a processor. peak is the
// most requests that were at work since the look before.
func (l *limit) adjust(short bool, peak int) {
	if short {
		// What was at work was too much. A limit that was not reached says nothing.
		l.value = max(l.least, falls*min(l.value, float64(peak)))
		return
	}
	l.value = min(l.most, l.value+max(1, rises*l.value))
}
