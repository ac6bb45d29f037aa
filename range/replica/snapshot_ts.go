package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How a moment for reading several partitions is found.
//
// A MergeScan without a timestamp asks for a moment M such that every write in the span of each
// partition that was acknowledged before the request came has a timestamp at or below M. Each
// partition is asked as for a read of the latest state of the span, up to where the engine would be
// read; M is the highest of their timestamps. For one partition that timestamp is late enough:
//
//   - A write that is applied here lies at or below the highest applied timestamp. This replica
//     leads after the request came, so what earlier leaders acknowledged is applied, and what it
//     acknowledged itself too.
//   - A transaction that has committed, and whose write here is still a lock, may have any commit
//     timestamp: it may have come from another partition, with a faster clock. Its lock was applied
//     before the commit was acknowledged, so the read meets it. It has the transaction told to
//     commit above, or learns the commit, waits for it and moves up to it (concurrency/read.go).
//
// What is not acknowledged yet may get a timestamp on either side of M. So a reader that knows a
// moment for all partitions of a span reads there exactly, at any leader and at any later time:
// nothing is uncertain. Since nothing is read here, nothing is noted in the timestamp cache, and
// writes in flight are not waited for: the reads at M do that. Nor does it matter that M may be
// ahead of this server's clock.

// answerMoment answers a request for a moment. Its parts have their timestamps, or have refused.
func (m *multiscan) answerMoment() {
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
