package slowlog

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/spans"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// DefaultThreshold is from when on a request counts as slow, unless the node says otherwise.
	DefaultThreshold = 500 * time.Millisecond

	keptNewest  = 256
	keptSlowest = 64
	// slowestFor is for how long the slowest are kept.
	slowestFor = time.Hour
	// pace is the time between two entries, unless the later one is among the slowest.
	pace = time.Millisecond
	// sampledEvery is how many requests come to one of which the parts are counted.
	sampledEvery = 64
)

// Config configures a Log.
type Config struct {
	// Node is the node whose requests are watched.
	Node keys.NodeID
	// Threshold is from when on a request counts as slow. 0 takes DefaultThreshold; if it is
	// negative, no request counts as slow.
	Threshold time.Duration
	// KeyspaceOf returns the keyspace of a partition, 0 if the node does not know it.
	KeyspaceOf func(partition uint64) uint64
	// Client, if not nil, returns the address from which a client is connected, and its user; ""
	// if they are not known.
	Client func(client uint64) (address, user string)
	// Metrics are required.
	Metrics *Metrics
	// Spans, if not nil, makes the spans of requests.
	Spans *spans.Maker
}

// Log is the slow log of a node. It implements config.Watch. Safe for concurrent use.
type Log struct {
	config Config
	// seed is that of the hashes in the place of keys.
	seed maphash.Seed
	// count counts slow requests; latest is when the latest entry was made, in nanoseconds since the
	// epoch.
	count  atomic.Uint64
	latest atomic.Int64
	// least is the total of the fastest among the slowest, if there are as many as are kept; 0
	// otherwise.
	least atomic.Int64

	mu struct {
		sync.Mutex
		// newest is a ring: next is the index of the oldest entry in it once it is full.
		newest []*kvpb.SlowRequest
		next   int
		// slowest are sorted, the slowest first.
		slowest []*kvpb.SlowRequest
	}
}

// New makes an empty log.
func New(c Config) *Log {
	if c.Threshold == 0 {
		c.Threshold = DefaultThreshold
	}
	return &Log{config: c, seed: maphash.MakeSeed()}
}

// Begin returns the timing of a request that has arrived.
func (l *Log) Begin(arrived time.Time) *timing.Request { return timing.Start(arrived) }

// Answered implements config.Watch. A request that may be held until there is something to tell is
// not slow because it was held.
func (l *Log) Answered(p *config.Pending, c *command.Command, response *kvpb.Response) {
	total := p.Timing.Total()
	if c.Lasting {
		return
	}
	if rand.Uint32()%sampledEvery == 0 {
		l.config.Metrics.observe(p.Timing)
	}
	slow := l.config.Threshold > 0 && total >= l.config.Threshold
	l.config.Spans.Answered(p, c, response, slow)
	if !slow {
		return
	}
	l.count.Add(1)
	l.config.Metrics.slow.Inc()
	now := time.Now()
	latest := l.latest.Load()
	if since := now.UnixNano() - latest; since >= 0 && since < int64(pace) &&
		int64(total) <= l.least.Load() {
		return
	}
	l.latest.Store(now.UnixNano())
	l.keep(l.entry(p, c, response, total), now)
}

// keep adds an entry.
func (l *Log) keep(e *kvpb.SlowRequest, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.mu.newest) < keptNewest {
		l.mu.newest = append(l.mu.newest, e)
	} else {
		l.mu.newest[l.mu.next] = e
		l.mu.next = (l.mu.next + 1) % keptNewest
	}
	old := now.Add(-slowestFor).UnixNano()
	l.mu.slowest = slices.DeleteFunc(l.mu.slowest, func(x *kvpb.SlowRequest) bool {
		return int64(x.Began) < old
	})
	at, _ := slices.BinarySearchFunc(l.mu.slowest, e.TotalNanos,
		func(x *kvpb.SlowRequest, total uint64) int {
			if x.TotalNanos >= total {
				return -1
			}
			return 1
		})
	if at < keptSlowest {
		l.mu.slowest = slices.Insert(l.mu.slowest, at, e)
		if len(l.mu.slowest) > keptSlowest {
			l.mu.slowest = slices.Delete(l.mu.slowest, keptSlowest, len(l.mu.slowest))
		}
	}
	least := int64(0)
	if len(l.mu.slowest) == keptSlowest {
		least = int64(l.mu.slowest[keptSlowest-1].TotalNanos)
	}
	l.least.Store(least)
}

// List answers a request for the entries of the log. The caller has checked that the client
// administers the keyspaces that the request names.
func (l *Log) List(q *kvpb.SlowRequestsRequest) *kvpb.SlowRequestsResponse {
	out := &kvpb.SlowRequestsResponse{Node: uint64(l.config.Node), Count: l.count.Load(),
		ThresholdNanos: uint64(max(l.config.Threshold, 0))}
	wanted := make(map[uint64]bool, len(q.GetKeyspaces()))
	for _, id := range q.GetKeyspaces() {
		wanted[id] = true
	}
	for _, e := range l.entries() {
		if !wanted[e.Keyspace] || e.TotalNanos < q.GetLeastNanos() ||
			e.Began+e.TotalNanos <= q.GetAfter() {
			continue
		}
		if q.GetMax() > 0 && len(out.Requests) >= int(q.GetMax()) {
			break
		}
		if q.GetRedact() {
			e = l.redacted(e)
		}
		out.Requests = append(out.Requests, e)
	}
	return out
}

// entries returns all entries, the latest first.
func (l *Log) entries() []*kvpb.SlowRequest {
	l.mu.Lock()
	all := slices.Concat(l.mu.newest, l.mu.slowest)
	l.mu.Unlock()
	slices.SortFunc(all, func(a, b *kvpb.SlowRequest) int {
		switch {
		case a == b:
			return 0
		case a.Began != b.Began:
			return cmpDown(a.Began, b.Began)
		case a.TotalNanos != b.TotalNanos:
			return cmpDown(a.TotalNanos, b.TotalNanos)
		}
		return cmpDown(a.Client, b.Client)
	})
	return slices.Compact(all)
}

// cmpDown sorts from high to low.
func cmpDown(a, b uint64) int {
	if a > b {
		return -1
	}
	if a < b {
		return 1
	}
	return 0
}
