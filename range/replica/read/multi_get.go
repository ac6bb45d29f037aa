package read

import (
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How keys of several partitions of a node are read in one request.
//
// Each partition is asked as for a BatchGet of its own (see read): it proves its leadership, notes
// the keys in its timestamp cache, and looks for locks and for writes in flight at or below the
// timestamp. A partition that would have to wait, for these, for a confirmation of its leadership
// or for commit wait, is left to a request of its own, so that it delays no other. Then one
// iterator reads all the others.
//
// INVARIANT: the iterator is opened after the last partition was asked, so it sees all that each
// partition had applied when it was asked. The state at the timestamp does not change from then on.
// The replicas stay in use until the iterator is closed.

// Finder finds the replicas of a node.
type Finder interface {
	// Reader returns the reader of a partition's replica, or an error if this node has no replica
	// that serves.
	Reader(partition uint64) (*Reader, *kvpb.Error)
}

const (
	// MaxMultiGetKeys bounds the keys that one MultiGet reads.
	MaxMultiGetKeys = 1024
	// maxMultiGetBytes bounds the bytes of one answer.
	maxMultiGetBytes = 1 << 20
)

// MultiGet reads keys of several partitions, and answers once, before it returns. The caller has
// checked that the request has a timestamp, no more than MaxMerged partitions, and no more than
// MaxMultiGetKeys keys.
func (n *Multi) MultiGet(pending config.Pending, find Finder) {
	q := pending.Request
	var response *kvpb.Response
	if q.TimeoutMicros != 0 && pending.Expired(time.Now()) {
		response = refusal.New(q, kvpb.ErrorCode_DEADLINE_EXCEEDED,
			"the request waited longer than its timeout, and did not run")
	} else {
		began := time.Now()
		m := multiGets.Get().(*multiGet)
		m.ask(&pending, find)
		response = m.answer(n)
		m.count(time.Since(began))
		m.release()
	}
	response.Id = q.Id
	n.Tell(response, wire.FromTimestamp(q.GetMultiGet().GetAt()))
	n.Answer(&pending, command.MultiGet, response)
	command.ReleaseRows(response.GetMultiGet().GetRows())
}

// multiGet is a MultiGet in progress. It is reused after the answer, when no part refers to it.
type multiGet struct {
	parts []multiPart
	// getter reads the state; nil while it is not open.
	getter mvcc.Getter
	state  *engine.State
	key    []byte
}

var multiGets = sync.Pool{New: func() any { return new(multiGet) }}

// release returns the memory to the pool, without references to what belongs to others.
func (m *multiGet) release() {
	clear(m.parts)
	m.parts = m.parts[:0]
	multiGets.Put(m)
}

// multiPart is one partition of a MultiGet.
type multiPart struct {
	replica *Reader
	read    read
	request kvpb.Request
	command kvpb.Request_BatchGet
	get     kvpb.BatchGetRequest
	locked  lockedReading
	// active is set if the keys can be read; the read counts as active until the replica is left.
	active bool
	// bytes counts the bytes of rows that the partition has returned.
	bytes int
	// refusal is why the partition is not read. alone is set if it needs a request of its own.
	refusal *kvpb.Error
	alone   bool
}

func (p *multiPart) ready() { p.active = true }

func (p *multiPart) refused(response *kvpb.Response) { p.refusal = response.Error }

// waits refuses to wait: see the comment on top.
func (p *multiPart) waits() bool {
	p.alone = true
	return false
}

// ask asks all partitions.
func (m *multiGet) ask(pending *config.Pending, find Finder) {
	q, c := pending.Request, pending.Request.GetMultiGet()
	m.parts = slices.Grow(m.parts, len(c.Partitions))[:len(c.Partitions)]
	for i, asked := range c.Partitions {
		p := &m.parts[i]
		p.get.Keys, p.get.At, p.get.Context = asked.GetKeys(), c.At, c.Context
		p.command.BatchGet = &p.get
		p.request.Partition, p.request.Generation = asked.GetPartition(), asked.GetGeneration()
		p.request.Term = asked.GetTerm()
		p.request.Session, p.request.Command = q.Session, &p.command
		if p.replica, p.refusal = find.Reader(asked.GetPartition()); p.replica == nil {
			continue
		}
		p.read = read{part: p, command: command.BatchGet, lockedReading: &p.locked,
			pending: config.Pending{Client: pending.Client, Request: &p.request, Arrived: pending.Arrived}}
		if !p.replica.Enter() {
			p.refusal = p.replica.Refuse.Closed(&p.request).Error
			continue
		}
		p.replica.startRead(&p.read)
		p.replica.Exit()
	}
}

// answer reads what can be read, and leaves the replicas.
func (m *multiGet) answer(n *Multi) *kvpb.Response {
	out := &struct {
		response kvpb.Response
		result   kvpb.Response_MultiGet
		got      kvpb.MultiGetResponse
	}{}
	out.response.Result, out.result.MultiGet = &out.result, &out.got
	rows := command.NewRows()
	for i := range m.parts {
		p := &m.parts[i]
		if p.active {
			rows = m.readPart(n, p, rows)
		}
		switch {
		case p.refusal != nil:
			out.got.Refused = append(out.got.Refused,
				&kvpb.PartitionRefusal{Partition: p.request.Partition, Error: p.refusal})
		case p.alone:
			out.got.Alone = append(out.got.Alone, p.request.Partition)
		}
	}
	out.got.Rows = rows
	if m.state != nil {
		_ = m.getter.Close() // an error was met by the read that met it
		m.state = nil
	}
	for i := range m.parts {
		if p := &m.parts[i]; p.active {
			p.replica.Exit()
		}
	}
	return &out.response
}

// count adds the elapsed time to the partitions that were read, by the number of keys.
func (m *multiGet) count(took time.Duration) {
	all := 0
	for i := range m.parts {
		if p := &m.parts[i]; p.active {
			all += len(p.get.Keys)
		}
	}
	for i := range m.parts {
		if p := &m.parts[i]; p.active && all > 0 {
			p.replica.Work.Shared(took*time.Duration(len(p.get.Keys))/time.Duration(all), p.bytes)
		}
	}
}

// readPart appends the rows of a partition, or notes why they cannot be read.
func (m *multiGet) readPart(n *Multi, p *multiPart, rows []byte) []byte {
	before := len(rows)
	r, rd := p.replica, &p.read
	rows, err := m.readKeys(r, rd, p.get.Keys, rows)
	refusal := r.TooOld(rd.pending.Request, rd.timestamp)
	if refusal == nil {
		refusal = r.moved(rd)
	}
	if refusal == nil && err != nil {
		refusal = r.failedRead(rd, err)
	}
	switch {
	case refusal != nil:
		p.refusal = refusal.Error
		n.Metrics.Answered(command.BatchGet, refusal)
	case len(rows) > maxMultiGetBytes:
		p.alone = true
	case !rd.seen.IsZero() && !n.Waits.Passed(rd.seen):
		p.alone = true // it waits for commit wait
	default:
		n.Metrics.Reads.Lease.Inc() // a part that needs a read index was left out
		p.bytes = len(rows) - before
		return rows
	}
	return rows[:before]
}

// see notes a version that was read.
func (rd *read) see(v mvcc.Version, found bool) {
	if found && v.CommitWait {
		rd.seen = hlc.Max(rd.seen, v.Timestamp)
	}
}

func (m *multiGet) readKeys(r *Reader, rd *read, all [][]byte, rows []byte) ([]byte, error) {
	if m.state != r.State { // the same for all replicas of a node
		if m.state != nil {
			_ = m.getter.Close()
		}
		m.state = nil
		if err := m.getter.Open(r.State); err != nil {
			return rows, err
		}
		m.state = r.State
	}
	for _, key := range all {
		if len(rows) > maxMultiGetBytes {
			break
		}
		m.key = keys.AppendInternalKey(m.key[:0], rd.descriptor, key)
		v, found, err := m.getter.ViewUncertain(m.key, rd.timestamp, rd.uncertain())
		if err != nil {
			return rows, err
		}
		if rd.see(v, found); found && v.Kind == mvcc.KindValue {
			rows = wire.AppendRow(rows, key, v.Value, v.Timestamp, v.Expires)
		}
	}
	return rows, nil
}
