package export

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/backup/archive"
	"github.com/tidemarkdb/tidemark/range/backup/manifest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Query says which versions a Source reads from a span of rows. If After is zero, these are the
// versions that could be read at At. Otherwise they are the newest version of each row in (After,
// At], including tombstones.
type Query struct {
	Keyspace keys.KeyspaceID
	// Hashed is set for a hash keyspace. Its hash numbers are 0 to Hashes-1.
	Hashed    bool
	Hashes    uint32
	Span      keys.Span
	After, At hlc.Timestamp
	// Every asks for all versions of each row in (After, At]. It has no effect if After is zero.
	Every bool
	// Above is set if the page before ended between two versions of the span's first row: the versions
	// at or below Above were in that page. It is set only together with Every.
	Above hlc.Timestamp
}

// Page has some of the rows of a query.
type Page struct {
	// Records are in the order of their rows, and each row occurs once. With Query.Every the versions
	// of a row follow each other, the newest first. The caller owns the records.
	Records []archive.Record
	// Rest and Above are Query.Span and Query.Above for the next page. Over is set if nothing is left.
	Rest  keys.Span
	Above hlc.Timestamp
	Over  bool
}

// Source reads pages. Its methods may be called from any goroutine.
type Source interface {
	// Page reads the first rows of a query. The page has no records if the first partition of the span
	// has none.
	Page(context.Context, Query) (Page, error)
}

// pageBytes limits the bytes of keys and values in a page. A single row may be larger. The encoded
// page fits into the buffers that connections and replicas reuse. With pages of a mebibyte a quarter
// of an export's processor time goes into new buffers. pageRows limits the number of rows.
const (
	pageBytes = 192 << 10
	pageRows  = 20_000
	// changesBytes limits a page of changes. A page of a log that ends between two versions of a row
	// ends a piece, and small pieces are many objects.
	changesBytes = 1 << 20
)

// closedWait limits how long a replica waits for the moment to be closed, and for locks. After
// that, another replica is asked.
const closedWait = 3 * time.Second

// senderSource reads through a Sender.
type senderSource struct{ sender *route.Sender }

// NewSource returns a Source that reads from a cluster. The sender must belong to a server, or to a
// user who may read the keyspaces. The owner of the sender closes it.
func NewSource(sender *route.Sender) Source { return senderSource{sender} }

// near says that the nearest replica that has closed the moment should answer.
func near(at hlc.Timestamp) *route.Near {
	return &route.Near{Freshness: route.FreshExact, At: at, Wait: closedWait}
}

// Page implements Source.
func (s senderSource) Page(ctx context.Context, q Query) (Page, error) {
	hash, user, end, err := q.first()
	if err != nil {
		return Page{}, err
	}
	call := &route.Call{Keyspace: q.Keyspace, By: route.ByKey, Hash: hash, Key: user.Start,
		Request: &kvpb.Request{Background: true}}
	if q.Hashed {
		call.By = route.ByHash
	}
	var read reading
	if q.After.IsZero() {
		read = &scanning{at: q.At}
	} else {
		read = &changing{after: q.After, at: q.At, every: q.Every}
		if q.Every && !q.Above.IsZero() {
			read = &changing{after: q.After, at: q.At, every: true, resume: user.Start, version: q.Above}
		}
	}
	read.ask(call.Request)
	call.Prepare = route.PreparerFunc(func(p *route.Partition, _ route.Leader) error {
		read.clip(user.Intersect(p.Span))
		return nil
	})
	var records []archive.Record
	for {
		answer, err := s.sender.DoNear(ctx, call, near(q.At))
		if err != nil {
			return Page{}, err
		}
		more, resume, err := read.take(answer.Response, &records)
		if err != nil {
			return Page{}, fmt.Errorf("partition %d: %w", answer.Partition.ID, err)
		}
		switch {
		case !more && len(answer.Partition.Span.End) == 0, !more && len(user.End) > 0 &&
			bytes.Compare(answer.Partition.Span.End, user.End) >= 0:
			return q.page(records, hash, end, nil), nil
		case !more:
			return q.page(records, hash, end, answer.Partition.Span.End), nil
		case bytes.Equal(resume, user.Start) && read.within(resume) && !q.Every:
			continue // more versions of the row that the page begins with
		case q.Every && read.within(resume):
			p := q.page(records, hash, end, resume)
			p.Above = read.(*changing).version
			return p, nil
		case bytes.Compare(resume, user.Start) <= 0:
			return Page{}, fmt.Errorf("partition %d on node %d answered with a key to continue at that "+
				"does not lead on: %s", answer.Partition.ID, answer.Node, keys.Pretty(resume))
		}
		return q.page(records, hash, end, resume), nil
	}
}

// first separates the part of the span that lies in its first hash number. It returns the hash
// number, the user keys in it, and the row at which the next hash number begins. next is nil if the
// span ends within the first hash number.
func (q *Query) first() (hash uint32, user keys.Span, next []byte, err error) {
	if !q.Hashed {
		return 0, q.Span, nil, nil
	}
	if len(q.Span.Start) > 0 {
		var ok bool
		if hash, user.Start, ok = manifest.SplitHashRow(q.Span.Start); !ok {
			return 0, keys.Span{}, nil, fmt.Errorf("the span %v is not one of a hash keyspace", q.Span)
		}
	}
	if last, end, ok := manifest.SplitHashRow(q.Span.End); ok && last == hash && len(end) > 0 {
		user.End = end
		return hash, user, nil, nil
	}
	if hash+1 >= q.Hashes {
		return hash, user, nil, nil
	}
	return hash, user, manifest.HashRow(hash+1, nil), nil
}

// page makes a page of the records that were read from the first hash number. The records reach up
// to user key `to`. If to is nil, they reach the end of the hash number.
func (q *Query) page(records []archive.Record, hash uint32, next, to []byte) Page {
	p := Page{Records: records, Rest: keys.Span{End: q.Span.End}}
	if q.Hashed {
		for i := range records {
			records[i].Key = manifest.HashRow(hash, records[i].Key)
		}
	}
	switch {
	case to != nil && q.Hashed:
		p.Rest.Start = manifest.HashRow(hash, to)
	case to != nil:
		p.Rest.Start = bytes.Clone(to)
	case next == nil:
		p.Over = true
	default:
		p.Rest.Start = next
	}
	p.Over = p.Over || p.Rest.Empty()
	return p
}

// reading is a request for rows, and the processing of its answers.
type reading interface {
	// ask puts the command into a request. clip sets the span of the command.
	ask(*kvpb.Request)
	clip(keys.Span)
	// take appends the records of an answer, and returns where to continue.
	take(*kvpb.Response, *[]archive.Record) (more bool, resume []byte, err error)
	// within reports whether the next request continues between the versions of the row `resume`.
	within(resume []byte) bool
}

// scanning reads the versions that could be read at a moment.
type scanning struct {
	at   hlc.Timestamp
	scan *kvpb.ScanRequest
}

func (r *scanning) ask(q *kvpb.Request) {
	r.scan = &kvpb.ScanRequest{At: wire.ToTimestamp(r.at), MaxBytes: pageBytes, MaxRows: pageRows}
	q.Command = &kvpb.Request_Scan{Scan: r.scan}
}

func (r *scanning) clip(span keys.Span) { r.scan.Start, r.scan.End = span.Start, span.End }

func (r *scanning) within([]byte) bool { return false }

func (r *scanning) take(response *kvpb.Response,
	records *[]archive.Record) (more bool, resume []byte, err error) {
	scanned := response.GetScan()
	if at := wire.FromTimestamp(scanned.GetAt()); at != r.at {
		return false, nil, fmt.Errorf("it was read at %v instead of at %v", at, r.at)
	}
	rows, err := wire.DecodeRows(scanned.GetRows())
	if err != nil {
		return false, nil, err
	}
	for i := range rows {
		*records = append(*records, archive.Record{Key: rows[i].Key, Timestamp: rows[i].Version,
			Expiry: rows[i].Expires, Value: rows[i].Value})
	}
	return scanned.GetMore(), scanned.GetResume(), nil
}

// changing reads the newest version of each row in a period, or every version.
type changing struct {
	after, at hlc.Timestamp
	every     bool
	changes   *kvpb.ChangesRequest
	// resume and version are the row and the version at which the next request continues.
	resume  []byte
	version hlc.Timestamp
}

func (r *changing) ask(q *kvpb.Request) {
	r.changes = &kvpb.ChangesRequest{After: wire.ToTimestamp(r.after), Upto: wire.ToTimestamp(r.at),
		LimitBytes: changesBytes}
	q.Command = &kvpb.Request_Changes{Changes: r.changes}
}

func (r *changing) clip(span keys.Span) {
	r.changes.Start, r.changes.End = span.Start, span.End
	r.changes.ResumeVersion = nil
	if r.resume != nil && bytes.Equal(span.Start, r.resume) {
		r.changes.ResumeVersion = wire.ToTimestamp(r.version)
	}
}

func (r *changing) within(resume []byte) bool {
	return r.resume != nil && bytes.Equal(resume, r.resume)
}

// take appends the newest version of each row. An answer may end between the versions of a row. It
// then has the oldest versions of that row: they are left out, and the next page begins with the
// row. If the page has no other row, the next answer has newer versions of the row, which replace
// the older ones. If every version is wanted, the page keeps the versions, and the next page begins
// within the row.
func (r *changing) take(response *kvpb.Response,
	records *[]archive.Record) (more bool, resume []byte, err error) {
	answer := response.GetChanges()
	if resolved := wire.FromTimestamp(answer.GetResolved()); resolved != r.at {
		return false, nil, fmt.Errorf("the changes are those up to %v instead of %v", resolved, r.at)
	}
	more, resume = answer.GetMore(), bytes.Clone(answer.GetResume())
	partial := more && answer.GetResumeVersion() != nil
	all := *records
	for _, c := range answer.GetChanges() {
		version := wire.FromTimestamp(c.GetVersion())
		if version.LessEq(r.after) || r.at.Less(version) {
			return false, nil, fmt.Errorf("the change of %s at %v is not in (%v, %v]",
				keys.Pretty(c.GetKey()), version, r.after, r.at)
		}
		record := archive.Record{Key: c.GetKey(), Timestamp: version, Expiry: int64(c.GetExpires()),
			Value: c.GetValue()}
		if c.GetDeleted() {
			record.Kind, record.Value, record.Expiry = archive.Tombstone, nil, 0
		}
		all = append(all, record)
	}
	slices.SortStableFunc(all, func(a, b archive.Record) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 {
			return c
		}
		return b.Timestamp.Compare(a.Timestamp)
	})
	if !r.every {
		all = slices.CompactFunc(all, func(a, b archive.Record) bool {
			return bytes.Equal(a.Key, b.Key)
		})
	}
	r.resume = nil
	switch n := len(all); {
	case r.every && partial:
		r.resume, r.version = resume, wire.FromTimestamp(answer.GetResumeVersion())
	case partial && bytes.Equal(r.changes.Start, resume):
		r.resume, r.version = resume, wire.FromTimestamp(answer.GetResumeVersion())
	case partial && n > 0 && bytes.Equal(all[n-1].Key, resume):
		all = all[:n-1]
	}
	*records = all
	return more, resume, nil
}
