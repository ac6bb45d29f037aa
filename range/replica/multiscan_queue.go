package replica

import (
	"sync"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// multiscanQueue has the merged scans that are ready served, a few at a time: those that are served
// together use the same iterators, and opening an iterator for each of a scan's partitions is a
// good part of what the scan costs. A scan does not wait for others to come: together go those that
// gathered while the server was busy.
//
// INVARIANT: the iterators are opened after all scans that use them were ready, so that they see
// what these have waited for.
type multiscanQueue struct {
	node *Node
	mu   struct {
		sync.Mutex
		ready []*multiscan
		// workers is how many functions of the pool serve, or are about to.
		workers int
	}
	// held are the scans that wait for the clocks.
	held commitwait.Queue
}

func (q *multiscanQueue) init(n *Node) {
	q.node = n
	q.held.Init(&n.Waits, maxReadyMultiscans, nil)
}

const (
	// maxReadyMultiscans bounds the scans that are ready and not served.
	maxReadyMultiscans = 4096
	// multiscanBatch is how many scans are served together.
	multiscanBatch = 16
	// multiscanWorkers is how many functions of the pool serve merged scans; others have the rest of
	// it.
	multiscanWorkers = 2
)

// add takes a scan of which all parts are settled.
func (q *multiscanQueue) add(m *multiscan) {
	q.mu.Lock()
	if len(q.mu.ready) >= maxReadyMultiscans {
		q.mu.Unlock()
		m.overloaded()
		return
	}
	q.mu.ready = append(q.mu.ready, m)
	start := q.mu.workers < multiscanWorkers
	if start {
		q.mu.workers++
	}
	q.mu.Unlock()
	if start {
		q.start()
	}
}

// hold has a scan read again when every clock has passed a timestamp; false if too many wait for
// that.
func (q *multiscanQueue) hold(m *multiscan, until hlc.Timestamp) bool {
	if !q.held.Hold(until, m) {
		return false
	}
	q.node.Metrics.Reads.Held.Inc()
	return true
}

// Release and Refuse make a scan that waits for the clocks a commitwait.Held.
func (m *multiscan) Release() { m.node.multiscans.add(m) }
func (m *multiscan) Refuse()  { m.overloaded() }

// start has the pool serve. Without a place in the pool, and no other goroutine at work, what is
// ready is refused.
func (q *multiscanQueue) start() {
	if q.node.Long.Go(q.serve) {
		return
	}
	q.mu.Lock()
	var refused []*multiscan
	if q.mu.workers--; q.mu.workers == 0 {
		refused = q.mu.ready
		q.mu.ready = nil
	}
	q.mu.Unlock()
	for _, m := range refused {
		m.overloaded()
	}
}

// serve serves a batch, and queues up in the pool again if there is more.
func (q *multiscanQueue) serve() {
	var batch [multiscanBatch]*multiscan
	q.mu.Lock()
	n := copy(batch[:], q.mu.ready)
	rest := copy(q.mu.ready, q.mu.ready[n:])
	clear(q.mu.ready[rest:])
	q.mu.ready = q.mu.ready[:rest]
	q.mu.Unlock()

	open := openReplicas{}
	for _, m := range batch[:n] {
		if len(open)+len(m.parts) > MaxMerged {
			open.close()
		}
		m.serve(&open)
	}
	open.close()

	q.mu.Lock()
	again := len(q.mu.ready) > 0
	if !again {
		q.mu.workers--
	}
	q.mu.Unlock()
	if again {
		q.start()
	}
}

func (m *multiscan) overloaded() {
	m.answer(refusal.New(m.pending.Request, kvpb.ErrorCode_OVERLOADED,
		"too many reads are being served by this server; try again more slowly"), hlc.Timestamp{})
}

// openReplicas are replicas that a batch has entered, with their iterators.
type openReplicas map[*Replica]*mvcc.Kept

// enter returns the replica's iterator; nil if the replica is closed.
func (o *openReplicas) enter(r *Replica) *mvcc.Kept {
	kept := (*o)[r]
	if kept == nil && r.enter() {
		kept = new(mvcc.Kept)
		(*o)[r] = kept
	}
	return kept
}

// close closes the iterators and leaves the replicas.
func (o *openReplicas) close() {
	for r, kept := range *o {
		kept.Close()
		r.exit()
	}
	clear(*o)
}
