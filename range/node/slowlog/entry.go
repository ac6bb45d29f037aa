package slowlog

import (
	"bytes"
	"hash/maphash"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// maxKeyBytes is how much of a key an entry has.
const maxKeyBytes = 128

// entry makes an entry of a request that took so long.
func (l *Log) entry(p *config.Pending, c *command.Command, response *kvpb.Response,
	total time.Duration) *kvpb.SlowRequest {
	q := p.Request
	e := &kvpb.SlowRequest{Began: uint64(p.Arrived.UnixNano()), TotalNanos: uint64(total),
		Kind: c.Name, Partition: q.Partition, Client: p.Client, RequestBytes: uint64(q.SizeVT()),
		ResponseBytes: uint64(response.SizeVT()), Parts: parts(p.Timing)}
	if len(q.Trace) >= traceIDBytes {
		e.Trace = bytes.Clone(q.Trace[:traceIDBytes])
	}
	partition := q.Partition
	switch {
	case c == command.MultiGet:
		for _, of := range q.GetMultiGet().GetPartitions() {
			if e.Keys == 0 && len(of.GetKeys()) > 0 {
				addKey(e, of.GetKeys()[0])
			}
			e.Keys += uint32(len(of.GetKeys()))
			partition = of.GetPartition()
		}
	case c == command.MergeScan:
		of := q.GetMergeScan()
		addKey(e, of.GetStart())
		e.Spans = 1
		if all := of.GetPartitions(); len(all) > 0 {
			partition = all[0].GetPartition()
		}
	case c.Footprint != nil && c.Body(q):
		addFootprint(e, c.Footprint(q))
	}
	e.Keyspace = l.config.KeyspaceOf(partition)
	if response.Error != nil {
		e.Failed, e.Error = true, response.Error.Code
	}
	if by := p.Timing.Blocked(); by != (timing.Blocked{}) {
		e.LockKey, e.LockTransaction = []byte(by.Key[:min(len(by.Key), maxKeyBytes)]), by.Transaction
	}
	if l.config.Client != nil {
		e.ClientAddress, e.User = l.config.Client(p.Client)
	}
	return e
}

// traceIDBytes is the length of the trace id at the begin of Request.trace.
const traceIDBytes = 16

// parts are the parts that took any time.
func parts(t *timing.Request) (all []*kvpb.RequestPart) {
	for p := range timing.Parts {
		if spent := t.Spent(p); spent > 0 {
			all = append(all, &kvpb.RequestPart{Name: p.String(), Nanos: uint64(spent)})
		}
	}
	return all
}

func addFootprint(e *kvpb.SlowRequest, f request.Footprint) {
	for key := range f.Keys {
		if e.Keys++; e.Keys == 1 {
			addKey(e, key)
		}
	}
	for start := range f.EachSpan {
		if e.Spans++; e.Keys == 0 && e.Spans == 1 {
			addKey(e, start)
		}
	}
}

// addKey notes the key of an entry, cut.
func addKey(e *kvpb.SlowRequest, key []byte) {
	e.Key, e.KeyBytes = bytes.Clone(key[:min(len(key), maxKeyBytes)]), uint32(len(key))
}

// redacted returns a copy of an entry with hashes in the place of keys.
func (l *Log) redacted(e *kvpb.SlowRequest) *kvpb.SlowRequest {
	c := proto.Clone(e).(*kvpb.SlowRequest)
	if len(c.Key) > 0 {
		c.Key, c.KeyHash = nil, maphash.Bytes(l.seed, e.Key)
	}
	if len(c.LockKey) > 0 {
		c.LockKey, c.LockKeyHash = nil, maphash.Bytes(l.seed, e.LockKey)
	}
	return c
}
