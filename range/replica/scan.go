package replica

import (
	"bytes"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pageRows is the number of rows in a page that asks for n.
func pageRows(n uint32) int {
	if n == 0 {
		return defaultPageRows
	}
	return int(min(n, maxPageRows))
}

// pageBytes is the number of bytes in a page that asks for n.
func pageBytes(n uint32) int64 {
	if n == 0 {
		return defaultPageBytes
	}
	return int64(min(n, maxPageBytes))
}

// maxSkipped is how many keys without a value a page looks at: a page can be empty, and yet not the last.
const maxSkipped = 100_000

// uncertainUntil is the uncertainty limit of a read, zero if nothing is uncertain.
func (rd *read) uncertainUntil() hlc.Timestamp {
	if rd.timestamp.Less(rd.limit) {
		return rd.limit
	}
	return hlc.Timestamp{}
}

func asUncertainty(err error) (hlc.Timestamp, bool) {
	var u *mvcc.UncertaintyError
	if errors.As(err, &u) {
		return u.Timestamp, true
	}
	return hlc.Timestamp{}, false
}

// uncertainKey is the internal key at which a read met something uncertain.
func uncertainKey(err error) ([]byte, bool) {
	var u *mvcc.UncertaintyError
	if errors.As(err, &u) {
		return u.Key, true
	}
	return nil, false
}

// scan reads a page. Its rows are released when it is answered.
func (r *Replica) scan(rd *read, c *kvpb.ScanRequest) (*kvpb.Response, error) {
	m := &kvpb.ScanResponse{At: rpc.ToTimestamp(rd.timestamp)}
	response := &kvpb.Response{Id: rd.pending.Request.Id, Result: &kvpb.Response_Scan{Scan: m}}
	if rd.span.Empty() {
		return response, nil
	}
	rows := newRows()
	result, err := mvcc.Scan(r.state, mvcc.ScanOptions{
		Span: rd.span, At: rd.timestamp, UncertainUntil: rd.uncertainUntil(),
		Reverse: c.Reverse, KeysOnly: c.KeysOnly, MaxRows: pageRows(c.MaxRows), MaxBytes: pageBytes(c.MaxBytes),
		MaxSkipped: maxSkipped,
	}, func(key []byte, v mvcc.Version) error {
		rows = rpc.AppendRow(rows, keys.UserKey(rd.descriptor, key), v.Value, v.Timestamp)
		return nil
	})
	if err != nil {
		releaseRows(rows)
		return nil, err
	}
	rd.seen = result.Waits
	m.Rows = rows
	if m.More = result.More; m.More {
		m.Resume = bytes.Clone(keys.UserKey(rd.descriptor, result.Resume))
	}
	return response, nil
}

func (r *Replica) count(rd *read, c *kvpb.CountRequest) (*kvpb.Response, error) {
	m := &kvpb.CountResponse{At: rpc.ToTimestamp(rd.timestamp)}
	response := &kvpb.Response{Id: rd.pending.Request.Id, Result: &kvpb.Response_Count{Count: m}}
	if rd.span.Empty() {
		return response, nil
	}
	result, err := mvcc.Count(r.state, mvcc.ScanOptions{
		Span: rd.span, At: rd.timestamp, UncertainUntil: rd.uncertainUntil(), KeysOnly: true, MaxRows: countRows(c.MaxRows), MaxSkipped: maxSkipped,
	})
	if err != nil {
		return nil, err
	}
	rd.seen = result.Waits
	m.Count = uint64(result.Rows)
	if m.More = result.More; m.More {
		m.Resume = bytes.Clone(keys.UserKey(rd.descriptor, result.Resume))
	}
	return response, nil
}

// Counting sends no rows, so its pages are larger; their end keeps one request from holding a goroutine for long.
const (
	defaultCountRows = 100_000
	maxCountRows     = 1_000_000
)

func countRows(n uint32) int {
	if n == 0 {
		return defaultCountRows
	}
	return int(min(n, maxCountRows))
}
