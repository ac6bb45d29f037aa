package read

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/commitwait"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How several partitions of a node are read in one request.
//
// Each partition is asked as for a scan of its own (see read): it proves its leadership, notes the
// span in its timestamp cache, and waits for the writes in flight at or below the timestamp. A
// partition that refuses is left out, and named in the answer. When all others are ready, which may
// be at once, one function of the pool reads them together (see multiscanQueue). A partition that
// is ready is not held until then: its state at the timestamp does not change any more. A replica
// that is closed meanwhile counts as one that has refused.

// MaxMerged bounds the partitions of one MergeScan: each has an iterator open while the page is
// read.
const MaxMerged = 256

// Merged is one partition of a MergeScan, and the descriptor by which it was routed.
type Merged struct {
	// Reader is nil if this node has no replica to ask; then Refusal says why.
	Reader  *Reader
	Refusal *kvpb.Error
	Route   *kvpb.PartitionRoute
}

// MergeScan reads a page of several partitions, or finds a snapshot timestamp for reading them
// (answerTimestamp), and answers once. The caller has checked that the partitions are of one
// keyspace and no more than MaxMerged.
func (n *Multi) MergeScan(pending config.Pending, partitions []Merged) {
	m := multiscans.Get().(*multiscan)
	m.node, m.pending = n, pending
	m.parts = slices.Grow(m.parts, len(partitions))[:len(partitions)]
	q, c := pending.Request, pending.Request.GetMergeScan()
	// Every partition is asked with a Scan, of which only the span and the timestamps are used.
	asked := &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: c.Start, End: c.End, At: c.At,
		UncertainUntil: c.UncertainUntil}}
	m.timestampOnly = wire.FromTimestamp(c.At).IsZero()
	m.open.Store(int32(len(partitions)) + 1)
	pending.Timing.Enter(timing.Latch) // until all partitions are ready
	for i := range partitions {
		p, given := &m.parts[i], &partitions[i]
		p.scan, p.replica, p.refusal = m, given.Reader, given.Refusal
		p.request = kvpb.Request{
			Partition: given.Route.GetPartition(), Generation: given.Route.GetGeneration(),
			Term:    given.Route.GetTerm(),
			Session: q.Session, TimeoutMicros: q.TimeoutMicros, Command: asked,
		}
		if p.replica == nil {
			m.settled()
			continue
		}
		p.read = read{part: p, command: command.Scan, timestampOnly: m.timestampOnly,
			pending: config.Pending{Client: pending.Client, Request: &p.request,
				Arrived: pending.Arrived}}
		if !p.replica.Enter() {
			p.refused(p.replica.Refuse.Closed(&p.request))
			continue
		}
		p.replica.startRead(&p.read)
		p.replica.Exit()
	}
	m.settled()
}

// multiscan is a MergeScan in progress. It is reused after the answer, when no part refers to it.
type multiscan struct {
	node    *Multi
	pending config.Pending
	parts   []multiscanPart
	// timestampOnly is set if the request asks for a snapshot timestamp, and reads nothing.
	timestampOnly bool
	// read are the parts that are read; sources are what the merge reads of them.
	read    []*multiscanPart
	sources []mvcc.Source
	// open counts the parts that are neither ready nor refused, plus one for the loop that asks
	// them.
	open atomic.Int32
}

var multiscans = sync.Pool{New: func() any { return new(multiscan) }}

// release returns the memory to the pool, without references to what belongs to others.
func (m *multiscan) release() {
	clear(m.parts)
	clear(m.read)
	clear(m.sources)
	m.parts, m.read, m.sources = m.parts[:0], m.read[:0], m.sources[:0]
	m.node, m.pending = nil, config.Pending{}
	multiscans.Put(m)
}

// multiscanPart is one partition of a MergeScan. Only the goroutine that settles it uses it until
// then.
type multiscanPart struct {
	scan    *multiscan
	replica *Reader
	read    read
	request kvpb.Request
	// span is the part of the partition that is read, in internal keys.
	span keys.Span
	// refusal is why the partition is not read; nil if it is read.
	refusal *kvpb.Error
}

// refused takes the refusal of a partition that is not read.
func (p *multiscanPart) refused(response *kvpb.Response) {
	p.refusal = response.Error
	p.scan.settled()
}

// ready notes that the partition can be read.
func (p *multiscanPart) ready() {
	p.replica.Exit()
	p.scan.settled()
}

// waits lets the read wait: the page waits for all of its partitions.
func (p *multiscanPart) waits() bool { return true }

// settled counts a part that is ready or refused; after the last one the page is read.
func (m *multiscan) settled() {
	switch {
	case m.open.Add(-1) > 0:
	case m.timestampOnly:
		m.answerTimestamp()
	default:
		m.pending.Timing.Enter(timing.Queue)
		m.node.scans.add(m)
	}
}

// serve reads the page and answers.
func (m *multiscan) serve(open *openReplicas) {
	if m.pending.Request.TimeoutMicros != 0 && m.pending.Expired(time.Now()) {
		m.answer(refusal.New(m.pending.Request, kvpb.ErrorCode_DEADLINE_EXCEEDED,
			"the request waited longer than its timeout, and did not run"), hlc.Timestamp{})
		return
	}
	m.read, m.sources = m.read[:0], m.sources[:0]
	for i := range m.parts {
		p := &m.parts[i]
		if p.refusal != nil {
			continue
		}
		kept := open.enter(p.replica)
		if kept == nil {
			p.refusal = p.replica.Refuse.Closed(&p.request).Error
			continue
		}
		c := m.pending.Request.GetMergeScan()
		p.span = request.InternalSpan(p.read.descriptor, c.Start, c.End)
		m.read = append(m.read, p)
		m.sources = append(m.sources, mvcc.Source{
			Reader: p.replica.State, Span: p.span, Prefix: int(p.read.descriptor.PrefixLength),
			Uncertain: p.read.uncertain(), Kept: kept, Vacant: &p.replica.Vacant,
		})
	}
	began := time.Now()
	m.pending.Timing.EnterAt(timing.Evaluate, began)
	response, held := m.page()
	if held {
		return // another goroutine may use m by now
	}
	if n := len(m.read); n > 0 {
		took, bytes := time.Since(began), len(response.GetMergeScan().GetRows())
		for _, p := range m.read {
			p.replica.Work.SharedSpan(took/time.Duration(n), bytes/n)
		}
	}
	var at hlc.Timestamp
	if len(m.read) > 0 {
		at = m.read[0].read.timestamp
	}
	m.answer(response, at)
}

// page reads the page now, or later if it has to wait (held).
func (m *multiscan) page() (_ *kvpb.Response, held bool) {
	c := m.pending.Request.GetMergeScan()
	out := &kvpb.MergeScanResponse{}
	if len(m.read) > 0 {
		rows := command.NewRows()
		result, err := mvcc.Merge(m.sources, mvcc.ScanOptions{
			At: m.read[0].read.timestamp, Reverse: c.Reverse, KeysOnly: c.KeysOnly,
			MaxRows: request.PageRows(c.MaxRows), MaxBytes: request.PageBytes(c.MaxBytes),
			MaxSkipped: request.MaxSkipped,
		}, func(key []byte, v mvcc.Version) error {
			rows = wire.AppendRow(rows, key, v.Value, v.Timestamp, v.Expires)
			return nil
		})
		out.Rows, out.More, out.Resume = rows, result.More, result.Resume
		// Garbage collection of any of the partitions may have passed the timestamp.
		for _, p := range m.read {
			if refusal := p.replica.TooOld(&p.request, p.read.timestamp); refusal != nil {
				command.ReleaseRows(rows)
				return refusal, false
			}
		}
		if m.leaveMoved() {
			command.ReleaseRows(rows)
			return m.page()
		}
		if err != nil {
			command.ReleaseRows(rows)
			return m.failed(err), false
		}
		if !result.CommitWaitUntil.IsZero() && !m.node.Waits.Passed(result.CommitWaitUntil) {
			command.ReleaseRows(rows)
			m.pending.Timing.Enter(timing.Clock)
			if !m.node.scans.hold(m, result.CommitWaitUntil) {
				return refusal.New(m.pending.Request, kvpb.ErrorCode_OVERLOADED,
					"too many reads of this server wait for commits that are not to be seen yet; try again "+
						"more slowly"), false
			}
			return nil, true
		}
		for _, p := range m.read {
			p.count()
		}
	}
	m.name(out)
	return &kvpb.Response{Result: &kvpb.Response_MergeScan{MergeScan: out}}, false
}

// leaveMoved leaves out the partitions that have changed since they were asked, and reports whether
// there were any.
func (m *multiscan) leaveMoved() (any bool) {
	kept := 0
	for i, p := range m.read {
		if moved := p.replica.moved(&p.read); moved != nil {
			p.refusal, any = moved.Error, true
			continue
		}
		m.read[kept], m.sources[kept] = p, m.sources[i]
		kept++
	}
	m.read, m.sources = m.read[:kept], m.sources[:kept]
	return any
}

// count counts by what the leadership of a part was proved.
func (p *multiscanPart) count() {
	if p.read.term == 0 {
		p.scan.node.Metrics.Reads.Lease.Inc()
	} else {
		p.scan.node.Metrics.Reads.ReadIndex.Inc()
	}
}

// name names the partitions that refused.
func (m *multiscan) name(out *kvpb.MergeScanResponse) {
	for i := range m.parts {
		if p := &m.parts[i]; p.refusal != nil {
			out.Refused = append(out.Refused,
				&kvpb.PartitionRefusal{Partition: p.request.Partition, Error: p.refusal})
		}
	}
}

// failed returns the answer after an error. Uncertainty, the usual reason, names the key, and so
// the partition.
func (m *multiscan) failed(err error) *kvpb.Response {
	at := m.read[0]
	if u := asUncertainty(err); u != nil {
		if i := slices.IndexFunc(m.read,
			func(p *multiscanPart) bool { return p.span.Contains(u.Key) }); i >= 0 {
			at = m.read[i]
		}
	}
	return at.replica.failedRead(&at.read, err)
}

// answer answers a request that has read at a timestamp, and ends the scan.
func (m *multiscan) answer(response *kvpb.Response, at hlc.Timestamp) {
	response.Id = m.pending.Request.Id
	m.node.Tell(response, at)
	m.node.Answer(&m.pending, command.MergeScan, response)
	command.ReleaseRows(response.GetMergeScan().GetRows())
	m.release()
}

// multiscanQueue serves the merged scans that are ready, a few at a time: those that are served
// together use the same iterators, and opening an iterator for each of a scan's partitions is a
// good part of what the scan costs. A scan does not wait for others to come: those go together that
// have become ready while the server was busy.
//
// INVARIANT: the iterators are opened after all scans that use them were ready, so that they see
// what these have waited for.
type multiscanQueue struct {
	node *Multi
	mu   struct {
		sync.Mutex
		ready []*multiscan
		// workers counts the functions of the pool that serve, or are about to.
		workers int
	}
	// held are the scans that commit wait holds back.
	held commitwait.Queue
}

func (q *multiscanQueue) init(n *Multi) {
	q.node = n
	q.held.Init(&n.Waits, maxReadyMultiscans, nil)
}

const (
	// maxReadyMultiscans bounds the scans that are ready and not served.
	maxReadyMultiscans = 4096
	// multiscanBatch bounds the scans that are served together.
	multiscanBatch = 16
	// multiscanWorkers bounds the functions of the pool that serve merged scans; the rest of the
	// pool is for other work.
	multiscanWorkers = 2
)

// add takes a scan whose parts are all settled.
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

// hold repeats a scan when every clock has passed a timestamp; false if too many scans wait for
// that.
func (q *multiscanQueue) hold(m *multiscan, until hlc.Timestamp) bool {
	if !q.held.Hold(until, m) {
		return false
	}
	q.node.Metrics.Reads.Held.Inc()
	return true
}

// Release and Refuse make a scan that waits for the clocks a commitwait.Held.
func (m *multiscan) Release() { m.node.scans.add(m) }

func (m *multiscan) Refuse() { m.overloaded() }

// start starts a function of the pool that serves. If the pool is full, and no such function runs,
// the ready scans are refused.
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
type openReplicas map[*Reader]*mvcc.Kept

// enter returns the replica's iterator; nil if the replica is closed.
func (o *openReplicas) enter(r *Reader) *mvcc.Kept {
	kept := (*o)[r]
	if kept == nil && r.Enter() {
		kept = new(mvcc.Kept)
		(*o)[r] = kept
	}
	return kept
}

// close closes the iterators and leaves the replicas.
func (o *openReplicas) close() {
	for r, kept := range *o {
		kept.Close()
		r.Exit()
	}
	clear(*o)
}

// How a snapshot timestamp for reading several partitions is found.
//
// A MergeScan without a timestamp asks for a timestamp M such that every write in the span of each
// partition that was acknowledged before the request came has a timestamp at or below M. Each
// partition is asked as for a read of the latest state of the span, up to where the engine would be
// read; M is the highest of their timestamps. For one partition that timestamp is late enough:
//
//    - A write that is applied here lies at or below the highest applied timestamp. This replica
//      leads after the request came, so it has applied what earlier leaders acknowledged, and what
//      it has acknowledged itself.
//    - A committed transaction whose write here is still a lock may have any commit timestamp: it
//      may have come from another partition with a faster clock. Its lock was applied before the
//      commit was acknowledged, so the read meets the lock. It has the transaction told to commit
//      above the read, or learns of the commit, waits for it and moves up to it
//      (concurrency/read.go).
//
// A write that is not acknowledged yet may get a timestamp on either side of M. So a reader with a
// snapshot timestamp for all partitions of a span reads exactly there, at any leader and at any
// later time, without uncertainty. Nothing is read here, so nothing is noted in the timestamp
// cache, and writes in flight are not waited for: the reads at M do that. M may be ahead of this
// server's clock, which does no harm.

// answerTimestamp answers a request for a snapshot timestamp. Its parts have their timestamps, or
// have refused.
func (m *multiscan) answerTimestamp() {
	var at hlc.Timestamp
	for i := range m.parts {
		p := &m.parts[i]
		if p.refusal == nil {
			if moved := p.replica.moved(&p.read); moved != nil {
				p.refusal = moved.Error
			}
		}
		if p.refusal == nil {
			at = hlc.Max(at, p.read.timestamp)
			p.count()
		}
	}
	out := &kvpb.MergeScanResponse{At: wire.ToTimestamp(at)}
	m.name(out)
	m.answer(&kvpb.Response{Result: &kvpb.Response_MergeScan{MergeScan: out}}, at)
}

// Multi reads several partitions of a node in one request.
type Multi struct {
	*config.Node
	scans multiscanQueue
}

// Init prepares m for a node that is prepared.
func (n *Multi) Init(node *config.Node) {
	n.Node = node
	n.scans.init(n)
}
