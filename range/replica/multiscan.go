package replica

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How several partitions of a node are read in one request.
//
// Each partition is asked as for a scan of its own (see read): it proves its leadership, notes the
// span in its timestamp cache, and waits for the writes in flight at or below the timestamp. A
// partition that refuses is left out, and named in the answer. When all others are ready, which may
// be at once, one function of the pool reads them together (see multiscanQueue). From the moment a
// partition is ready until then nothing holds it: what there is to read at the timestamp stays as
// it is for ever, in this replica or in none. A replica that is closed meanwhile counts as one that
// refused.

// MaxMerged is how many partitions one MergeScan reads: each has an iterator open for as long as
// the page takes.
const MaxMerged = 256

// Merged is one partition of a MergeScan, and how it was routed.
type Merged struct {
	// Replica is nil if this node has none to ask; then Refusal says why.
	Replica *Replica
	Refusal *kvpb.Error
	Route   *kvpb.PartitionRoute
}

// MergeScan reads a page of several partitions, or finds a moment for reading them
// (snapshot_ts.go), and answers once. The caller has checked that the partitions are of one
// keyspace and no more than MaxMerged.
func (n *Node) MergeScan(pending config.Pending, partitions []Merged) {
	m := multiscans.Get().(*multiscan)
	m.node, m.pending = n, pending
	m.parts = slices.Grow(m.parts, len(partitions))[:len(partitions)]
	q, c := pending.Request, pending.Request.GetMergeScan()
	// Every partition is asked with a Scan, of which only the span and the times count.
	asked := &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: c.Start, End: c.End, At: c.At,
		UncertainUntil: c.UncertainUntil}}
	m.momentOnly = wire.FromTimestamp(c.At).IsZero()
	m.open.Store(int32(len(partitions)) + 1)
	for i := range partitions {
		p, given := &m.parts[i], &partitions[i]
		p.scan, p.replica, p.refusal = m, given.Replica, given.Refusal
		p.request = kvpb.Request{
			Partition: given.Route.GetPartition(), Generation: given.Route.GetGeneration(),
			Term:    given.Route.GetTerm(),
			Session: q.Session, TimeoutMicros: q.TimeoutMicros, Command: asked,
		}
		if p.replica == nil {
			m.settled()
			continue
		}
		p.read = read{part: p, command: command.Scan, momentOnly: m.momentOnly, pending: config.Pending{
			Client: pending.Client, Request: &p.request, Arrived: pending.Arrived,
		}}
		if !p.replica.enter() {
			p.refused(p.replica.refuse.Closed(&p.request))
			continue
		}
		p.replica.startRead(&p.read)
		p.replica.exit()
	}
	m.settled()
}

// multiscan is one MergeScan under way. It is used again when it has been answered: then no part
// is referred to any more.
type multiscan struct {
	node    *Node
	pending config.Pending
	parts   []multiscanPart
	// momentOnly: the request asks for a moment, and reads nothing.
	momentOnly bool
	// read are the parts that are read, sources what is read of them.
	read    []*multiscanPart
	sources []mvcc.Source
	// open counts the parts that are neither ready nor refused, and the loop that asks them.
	open atomic.Int32
}

var multiscans = sync.Pool{New: func() any { return new(multiscan) }}

// release gives the memory back, without what belongs to others.
func (m *multiscan) release() {
	clear(m.parts)
	clear(m.read)
	clear(m.sources)
	m.parts, m.read, m.sources = m.parts[:0], m.read[:0], m.sources[:0]
	m.node, m.pending = nil, config.Pending{}
	multiscans.Put(m)
}

// multiscanPart is one partition of it. The goroutine that settles it has it until then.
type multiscanPart struct {
	scan    *multiscan
	replica *Replica
	read    read
	request kvpb.Request
	// span is what is read of it, in internal keys.
	span keys.Span
	// refusal is why it is not read; nil: it is.
	refusal *kvpb.Error
}

// refused takes the answer of a partition that is not read.
func (p *multiscanPart) refused(response *kvpb.Response) {
	p.refusal = response.Error
	p.scan.settled()
}

// ready says that the partition can be read.
func (p *multiscanPart) ready() {
	p.replica.exit()
	p.scan.settled()
}

// waits: the page waits for all of its partitions.
func (p *multiscanPart) waits() bool { return true }

// settled counts a part; the last has the page read.
func (m *multiscan) settled() {
	switch {
	case m.open.Add(-1) > 0:
	case m.momentOnly:
		m.answerMoment()
	default:
		m.node.multiscans.add(m)
	}
}

// serve reads the page and answers.
func (m *multiscan) serve(open *openReplicas) {
	if m.pending.Request.TimeoutMicros != 0 && expired(&m.pending, time.Now()) {
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
			p.refusal = p.replica.refuse.Closed(&p.request).Error
			continue
		}
		c := m.pending.Request.GetMergeScan()
		p.span = command.InternalSpan(p.read.descriptor, c.Start, c.End)
		m.read = append(m.read, p)
		m.sources = append(m.sources, mvcc.Source{
			Reader: p.replica.state, Span: p.span, Prefix: int(p.read.descriptor.PrefixLength),
			Uncertain: p.read.uncertain(), Kept: kept, Vacant: &p.replica.vacant,
		})
	}
	began := time.Now()
	response, held := m.page()
	if held {
		return // another goroutine may have it by now
	}
	if n := len(m.read); n > 0 {
		took, bytes := time.Since(began), len(response.GetMergeScan().GetRows())
		for _, p := range m.read {
			p.replica.work.sharedSpan(took/time.Duration(n), bytes/n)
		}
	}
	var at hlc.Timestamp
	if len(m.read) > 0 {
		at = m.read[0].read.timestamp
	}
	m.answer(response, at)
}

// page reads the page, or has it read later (held).
func (m *multiscan) page() (_ *kvpb.Response, held bool) {
	c := m.pending.Request.GetMergeScan()
	out := &kvpb.MergeScanResponse{}
	if len(m.read) > 0 {
		rows := command.NewRows()
		result, err := mvcc.Merge(m.sources, mvcc.ScanOptions{
			At: m.read[0].read.timestamp, Reverse: c.Reverse, KeysOnly: c.KeysOnly,
			MaxRows: command.PageRows(c.MaxRows), MaxBytes: command.PageBytes(c.MaxBytes),
			MaxSkipped: command.MaxSkipped,
		}, func(key []byte, v mvcc.Version) error {
			rows = wire.AppendRow(rows, key, v.Value, v.Timestamp, v.Expires)
			return nil
		})
		out.Rows, out.More, out.Resume = rows, result.More, result.Resume
		// Garbage collection may have overtaken the timestamp in any of them.
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
			if !m.node.multiscans.hold(m, result.CommitWaitUntil) {
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

// leaveMoved leaves out the partitions that are not what they were when they were asked, and says
// whether there were any.
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

// count counts how the leadership of a part that is read was proved.
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

// failed is the answer when reading failed. Uncertainty, the usual reason, names the key, and so
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

// answer answers, after what was read at a timestamp, and ends the scan.
func (m *multiscan) answer(response *kvpb.Response, at hlc.Timestamp) {
	response.Id = m.pending.Request.Id
	m.node.Tell(response, at)
	m.node.Metrics.Answered(command.MergeScan, response)
	m.pending.Reply(response)
	command.ReleaseRows(response.GetMergeScan().GetRows())
	m.release()
}
