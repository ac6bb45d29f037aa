package watch

import (
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/placement/store/spans"
)

// interest has the watches of one span: those that get events as they happen, and those that take
// part in passes over the history. Other watches of the span lag and have no room.
type interest struct {
	live, lagging []*watch
	// all counts the watches of the span.
	all int
}

type interestEntry = spans.Entry[interest]

// Hub distributes events to streams. Its methods may be called from any goroutine, except for
// Publish and Reset.
//
// Each watch is in one of three states: it is *live*, and gets each event when the hub comes to it;
// it *lags*, and gets the events between its position and the live one from passes over the
// history; or it has *ended*.
//
// One goroutine (distribute) serves the live watches, and another (catchUp) those that lag. Both
// read a stretch of the events, from the ring or the history, without a lock, and put its events
// into the queues of the streams that have room. A watch whose stream has no room lags from there
// on.
//
// INVARIANT: a stream's queue, in order, has everything that each of its watches has to get up to
// the watch's position, and no part of a revision without the rest, unless watch.cut is set.
type Hub struct {
	history    History
	maxWatches int
	limits     *Limits
	// failed is Config.Failed.
	failed func(error)
	ring   *ring
	// published and behind wake the two goroutines, and closing ends them.
	published, behind, closing chan struct{}
	closed                     sync.Once
	running                    sync.WaitGroup
	// previous counts the watches that want what keys were before. It changes while mu is held.
	previous atomic.Int64
	// replacing is held while the state is replaced: a new watch of the next events waits for that,
	// since the next revision is not known. It is taken before mu.
	replacing sync.RWMutex

	mu struct {
		sync.Mutex
		index *spans.Index[interest]
		// live is the next event for the live watches.
		live Position
		// cut are live watches that have a part of the revision of live.
		cut     []*watch
		streams map[*Stream]struct{}
		// open counts watches, and lagging those that lag.
		open, lagging int
		// hungry are streams that have room, and watches that lag. pass counts the passes over the
		// history, and from is the beginning of the running one.
		hungry []*Stream
		pass   uint32
		from   Position
		// offered counts the events that were offered since the lock was last released.
		offered int
		// asking are streams that wait until they have everything up to a revision.
		asking []*Stream
		// failed is why the hub has ended; nil while it runs.
		failed error
	}
}

// Config is what a Hub is made of. History must be set.
type Config struct {
	History History
	// Head is the newest revision.
	Head uint64
	// MaxWatches bounds the watches of all streams together. An idle watch takes some 140 bytes,
	// and 130 for each distinct span. Default 10,000.
	MaxWatches int
	// Limits are the sizes by which the hub works. Default: those of DefaultLimits.
	Limits *Limits
	// Failed is called, at most once, if the history cannot be read, which ends the hub. Default:
	// nothing is called.
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

// WantsPrevious says whether a watch wants what keys were before. If not, events that are published
// need not say it. It waits for nothing.
func (h *Hub) WantsPrevious() bool { return h.previous.Load() > 0 }

// Publish adds the events of revisions, in order, and says what the newest revision is now. It
// waits for no watch. One goroutine calls Publish and Reset. The hub keeps the events.
func (h *Hub) Publish(added []Revision, head uint64) {
	if len(added) > 0 {
		h.ring.publish(added, head)
		poke(h.published)
	}
}

// Reset continues from the history after the state was replaced by one of that revision.
func (h *Hub) Reset(head uint64) {
	h.ring.reset(head)
	poke(h.published)
}

// Replace replaces the state by calling replace, which returns its revision, and continues from it.
// A watch of the next events that begins meanwhile begins after that revision.
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
// now on, if the hub had not failed before.
func (h *Hub) Close(reason error) {
	h.closed.Do(func() {
		h.fail(reason)
		close(h.closing)
	})
	h.running.Wait()
}

// fail ends the hub for a reason, and says whether it had not ended before.
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

// Counts are how much there is in a hub.
type Counts struct {
	Streams int
	// Watches are those of all streams, and Lagging those of them that get events from the history.
	Watches, Lagging int
}

// Counts returns how much there is.
func (h *Hub) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return Counts{Streams: len(h.mu.streams), Watches: h.mu.open, Lagging: h.mu.lagging}
}

// run calls step until it has nothing more to do, whenever it is woken, until the hub is closed.
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
