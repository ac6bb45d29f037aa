package watch

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/spans"
)

// interest are the watches of one span, in two lists: live watches, and watches of the passes.
// Lagging watches whose stream has no room are in neither list.
type interest struct {
	live, lagging []*watch
	// all counts the watches of the span.
	all int
}

type interestEntry = spans.Entry[interest]

// Hub distributes events to streams. Its methods may be called from any goroutine, except for
// Publish and Reset.
//
// Each watch is in one of three states: it is *live*, and gets each event when the hub distributes
// it; it *lags*, and gets the events between its position and the live one from passes over the
// history; or it has *ended*.
//
// One goroutine (distribute) serves the live watches, and another (catchUp) the lagging ones. Both
// read a stretch of the events, from the ring or the history, without a lock, and put its events
// into the queues of the streams that have room. A watch whose stream has no room lags from that
// event on.
//
// INVARIANT: a stream's queue has, in order, all events of each of its watches up to the watch's
// position, and no part of a revision without the rest, unless watch.cut is set.
type Hub struct {
	history    History
	maxWatches int
	limits     *Limits
	// failed is Config.Failed.
	failed func(error)
	ring   *ring
	// published and behind wake the two goroutines; closing ends them.
	published, behind, closing chan struct{}
	closed                     sync.Once
	running                    sync.WaitGroup
	// previous counts the watches that want previous values. Writers hold mu.
	previous atomic.Int64
	// replacing is held while the state is replaced. A watch that begins with the next event takes
	// it, and so waits, since the next revision is unknown during the replacement. It is taken
	// before mu.
	replacing sync.RWMutex

	mu struct {
		sync.Mutex
		index *spans.Index[interest]
		// live is the position of the next event for the live watches.
		live Position
		// cut are live watches that have a part of the revision of live.
		cut     []*watch
		streams map[*Stream]struct{}
		// open counts all watches, lagging the lagging ones.
		open, lagging int
		// hungry are streams with room and with lagging watches. pass counts the passes over the
		// history; from is the beginning of the running pass.
		hungry []*Stream
		pass   uint32
		from   Position
		// offered counts the events that were offered since the lock was last released.
		offered int
		// asking are streams that wait until their watches reach a revision.
		asking []*Stream
		// failed is the error with which the hub has ended; nil while it runs.
		failed error
	}
}

// Config configures a Hub. History must be set.
type Config struct {
	History History
	// Head is the newest revision.
	Head uint64
	// MaxWatches bounds the watches of all streams together. An idle watch takes some 140 bytes,
	// and 130 for each distinct span. Default 10,000.
	MaxWatches int
	// Limits are the sizes and bounds of the hub. Default DefaultLimits.
	Limits *Limits
	// Failed is called, at most once, if the history cannot be read, which ends the hub. nil: no
	// call.
	Failed func(error)
}

// New returns a hub without streams. The caller closes it.
func New(c Config) *Hub {
	if c.MaxWatches <= 0 {
		c.MaxWatches = 10_000
	}
	if c.Limits == nil {
		c.Limits = DefaultLimits()
	}
	h := &Hub{history: c.History, maxWatches: c.MaxWatches, failed: c.Failed, limits: c.Limits,
		ring: &ring{limits: c.Limits}, closing: make(chan struct{}),
		published: make(chan struct{}, 1), behind: make(chan struct{}, 1)}
	h.ring.reset(c.Head)
	h.mu.index = spans.New[interest]()
	h.mu.live = Position{Revision: c.Head + 1}
	h.mu.streams = map[*Stream]struct{}{}
	h.running.Go(h.distribute)
	h.running.Go(h.catchUp)
	return h
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// WantsPrevious reports whether a watch wants previous values. Otherwise published events may lack
// them. It does not block.
func (h *Hub) WantsPrevious() bool { return h.previous.Load() > 0 }

// Publish adds the events of revisions, in order, and sets the newest revision. It waits for no
// watch. Publish and Reset must be called by one goroutine at a time. The hub keeps the events.
func (h *Hub) Publish(added []Revision, head uint64) {
	if len(added) > 0 {
		h.ring.publish(added, head)
		poke(h.published)
	}
}

// Reset continues from the history after the state was replaced; head is the new state's revision.
func (h *Hub) Reset(head uint64) {
	h.ring.reset(head)
	poke(h.published)
}

// Replace replaces the state by calling replace, which returns its revision, and continues from it.
// A watch that begins meanwhile, with the next event, begins after that revision.
func (h *Hub) Replace(replace func() (head uint64, err error)) error {
	h.replacing.Lock()
	defer h.replacing.Unlock()
	head, err := replace()
	if err == nil {
		h.Reset(head)
	}
	return err
}

// Close ends the hub, and returns when its goroutines have ended. Streams return the reason from
// then on, or the earlier failure.
func (h *Hub) Close(reason error) {
	h.closed.Do(func() {
		h.fail(reason)
		close(h.closing)
	})
	h.running.Wait()
}

// End ends all watches with an error, and lets no new one begin. Unlike Close it does not wait.
func (h *Hub) End(reason error) { h.fail(reason) }

// fail ends the hub with an error, and returns false if it had ended before.
func (h *Hub) fail(err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failed != nil {
		return false
	}
	h.mu.failed = err
	for s := range h.mu.streams {
		poke(s.ready)
	}
	return true
}

// Counts are the numbers of a hub's streams and watches.
type Counts struct {
	Streams int
	// Watches are the watches of all streams, Lagging those among them that get events from the
	// history.
	Watches, Lagging int
}

// Counts returns the present numbers.
func (h *Hub) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Counts{Streams: len(h.mu.streams), Watches: h.mu.open, Lagging: h.mu.lagging}
}

// run calls step, each time it is woken, until step has nothing more to do. It returns when the hub
// is closed.
func (h *Hub) run(wake <-chan struct{}, step func() (bool, error)) {
	for {
		select {
		case <-h.closing:
			return
		case <-wake:
		}
		for more := true; more; {
			var err error
			if more, err = step(); err != nil {
				if h.fail(err) && h.failed != nil {
					h.failed(err)
				}
				return
			}
			more = more && !h.isClosing()
		}
	}
}

func (h *Hub) isClosing() bool {
	select {
	case <-h.closing:
		return true
	default:
		return false
	}
}
