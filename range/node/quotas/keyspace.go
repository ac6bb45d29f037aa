package quotas

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// kind is a kind of quota.
type kind int

const (
	ofSize kind = iota
	ofRequests
	ofThroughput
	kinds
)

// labels are those of the metrics.
var labels = [kinds]string{ofSize: "bytes", ofRequests: "requests", ofThroughput: "throughput"}

// keyspace is a keyspace with a quota.
type keyspace struct {
	id keys.KeyspaceID
	// size is the quota of stored bytes, 0 if there is none, and used what is stored, by what the
	// core has said.
	size, used atomic.Uint64

	mu struct {
		sync.Mutex
		name            string
		requests, bytes limit
		// answer is the usual size of an answer, 0 if there was none yet.
		answer float64
	}
}

// limit is a quota a second.
type limit struct {
	// quota is that of all nodes; 0: there is none. part is the part of this node, and told is set if
	// the core has said so.
	quota  uint64
	part   float64
	told   bool
	bucket bucket
	asked  meter
}

// leastPart is the least part that a node takes.
const leastPart = 1e-6

// set sets the quota. nodes is the number of nodes that share it while the core has not said how.
func (l *limit) set(quota uint64, nodes int, now time.Time) {
	l.quota = quota
	if !l.told {
		l.part = 1 / float64(max(nodes, 1))
	}
	l.settle(now)
}

// take takes the part that the core has said; nil: it stays.
func (l *limit) take(millionths *uint32, now time.Time) {
	if millionths == nil {
		return
	}
	l.part, l.told = float64(min(*millionths, 1e6))/1e6, true
	l.settle(now)
}

func (l *limit) settle(now time.Time) {
	if l.quota == 0 {
		*l = limit{part: l.part, told: l.told}
		return
	}
	l.bucket.setRate(float64(l.quota)*max(l.part, leastPart), now)
}

// has reports whether a request may take from the limit.
func (l *limit) has(now time.Time) bool {
	if l.quota == 0 {
		return true
	}
	l.bucket.fill(now)
	return l.bucket.has()
}

// pay takes the cost of a request that is let in.
func (l *limit) pay(cost float64, now time.Time) {
	if l.quota != 0 {
		l.asked.add(cost, now)
		l.bucket.fill(now)
		l.bucket.tokens -= cost
	}
}

// refund takes the cost of a request back that was let in and did not run.
func (l *limit) refund(cost float64, now time.Time) {
	if l.quota != 0 {
		l.asked.add(-min(cost, l.asked.now(now)*demandTime.Seconds()), now)
		l.bucket.fill(now)
		l.bucket.tokens = min(l.bucket.tokens+cost, l.bucket.size())
	}
}

// waits counts a refused request, by the time after which it is to come again.
func (l *limit) waits(cost float64, wait time.Duration, now time.Time) {
	if l.quota != 0 {
		l.asked.add(cost*wait.Seconds()/mostWait.Seconds(), now)
	}
}

// set takes the quotas of a keyspace from the table.
func (k *keyspace) set(d *clusterpb.Keyspace, nodes int, now time.Time) {
	k.size.Store(d.QuotaBytes)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.name = d.Name
	k.mu.requests.set(d.QuotaRequestsPerSecond, nodes, now)
	k.mu.bytes.set(d.QuotaBytesPerSecond, nodes, now)
}

// take takes what the core says.
func (k *keyspace) take(s *clusterpb.KeyspaceShare, now time.Time) {
	if s.UsedBytes != nil {
		k.used.Store(*s.UsedBytes)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.requests.take(s.RequestsMillionths, now)
	k.mu.bytes.take(s.BytesMillionths, now)
}

// full reports whether as much is stored as the quota allows.
func (k *keyspace) full() bool {
	size := k.size.Load()
	return size != 0 && k.used.Load() >= size
}

// refusal is why a request does not run.
type refusal struct {
	kind kind
	// wait is after which time the request is to come again.
	wait time.Duration
	text string
}

// enter takes what a request costs, or refuses it. size returns the size of the request, which is
// not asked for unless it counts. paid is the size that was paid for; 0: sizes do not count.
func (k *keyspace) enter(size func() int, node keys.NodeID, now time.Time) (paid float64,
	r *refusal) {
	k.mu.Lock()
	defer k.mu.Unlock()
	requests, bytes := &k.mu.requests, &k.mu.bytes
	cost := 0.0
	if bytes.quota != 0 {
		cost = float64(size())
	}
	mayAsk, maySend := requests.has(now), bytes.has(now)
	if mayAsk && maySend {
		requests.pay(1, now)
		bytes.pay(cost, now)
		return cost, nil
	}
	cost += k.mu.answer
	r = &refusal{}
	if !maySend {
		r.kind, r.wait = ofThroughput, bytes.bucket.refuse(cost, now)
		r.text = fmt.Sprintf("keyspace %q has reached its quota of %s a second%s; slow down, or raise "+
			"it with: tidemark keyspace alter %s --quota-throughput N", k.mu.name,
			keys.SizeText(bytes.quota), bytes.where(node), k.mu.name)
	}
	if !mayAsk {
		wait := requests.bucket.refuse(1, now)
		if wait >= r.wait {
			r.kind, r.wait = ofRequests, wait
			r.text = fmt.Sprintf("keyspace %q has reached its quota of %d requests a second%s; slow down, "+
				"or raise it with: tidemark keyspace alter %s --quota-requests N", k.mu.name,
				requests.quota, requests.where(node), k.mu.name)
		}
	}
	requests.waits(1, r.wait, now)
	bytes.waits(cost, r.wait, now)
	return 0, r
}

// where says which part of a quota a node has.
func (l *limit) where(node keys.NodeID) string {
	if l.part >= 0.995 {
		return fmt.Sprintf(" (node %s has all of it)", node)
	}
	return fmt.Sprintf(" (node %s has %.0f %% of it)", node, 100*l.part)
}

// refund takes back what a request has paid that did not run.
func (k *keyspace) refund(paid float64, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.requests.refund(1, now)
	k.mu.bytes.refund(paid, now)
}

// answered takes what an answer costs.
func (k *keyspace) answered(size func() int, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.bytes.quota == 0 {
		return
	}
	n := float64(size())
	// The average of some 16 answers.
	k.mu.answer += (n - k.mu.answer) / 16
	k.mu.bytes.pay(n, now)
}

// demand returns the demand in a second, rounded up.
func (k *keyspace) demand(now time.Time) (requests, bytes uint64) {
	// Less in a second is what is left of an average.
	const noRequests, noBytes = 0.01, 1
	up := func(m *meter, none float64) uint64 {
		rate := m.now(now)
		if rate < none {
			return 0
		}
		return uint64(rate) + 1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return up(&k.mu.requests.asked, noRequests), up(&k.mu.bytes.asked, noBytes)
}

// share shares the quotas among so many nodes, as long as the core has not said how.
func (k *keyspace) share(nodes int, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.requests.set(k.mu.requests.quota, nodes, now)
	k.mu.bytes.set(k.mu.bytes.quota, nodes, now)
}

// rated reports whether there is a quota a second.
func (k *keyspace) rated() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.requests.quota != 0 || k.mu.bytes.quota != 0
}
