package replica

import (
	"fmt"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// queueBench is a replica that serves as a queue: keys are put at the end and taken from the front.
type queueBench struct {
	b           *testing.B
	r           *Replica
	g           *instantGroup
	sequence    uint64
	first, next int
}

func (q *queueBench) do(requests ...*kvpb.Request) (last *kvpb.Response) {
	var answered sync.WaitGroup
	answered.Add(len(requests))
	pending := make([]config.Pending, 0, len(requests))
	for _, r := range requests {
		q.sequence++
		r.Generation, r.Term, r.Sequence = 1, 1, q.sequence
		pending = append(pending, config.Pending{Client: 1, Request: r,
			Reply: func(response *kvpb.Response) {
				if response.Error != nil {
					panic(response.Error.Message)
				}
				last = response
				answered.Done()
			}})
	}
	q.r.Submit(pending)
	for q.g.deliver() {
	}
	answered.Wait()
	return last
}

func queueKey(i int) []byte { return fmt.Appendf(nil, "queue-%09d", i) }

func (q *queueBench) put(n int) {
	for left := n; left > 0; {
		var requests []*kvpb.Request
		for range min(left, 500) {
			requests = append(requests, &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{
				Key: queueKey(q.next), Value: make([]byte, 100)}}})
			q.next++
		}
		left -= len(requests)
		q.do(requests...)
	}
}

// take deletes the first n keys.
func (q *queueBench) take(n int) {
	for left := n; left > 0; {
		var requests []*kvpb.Request
		for range min(left, 500) {
			requests = append(requests, &kvpb.Request{Command: &kvpb.Request_Delete{
				Delete: &kvpb.DeleteRequest{Key: queueKey(q.first)}}})
			q.first++
		}
		left -= len(requests)
		q.do(requests...)
	}
}

// head reads the first key, or the last of those below the end in reverse, page by page.
func (q *queueBench) head(reverse bool) (pages int) {
	c := &kvpb.ScanRequest{Start: []byte("queue-"), MaxRows: 1, Reverse: reverse}
	want := queueKey(q.first)
	if reverse {
		c.End, want = queueKey(q.first), []byte("queue+")
		c.Start = want
	}
	for {
		pages++
		m := q.do(&kvpb.Request{Command: &kvpb.Request_Scan{Scan: c}}).GetScan()
		for _, row := range rowsOf(m.GetRows()) {
			if string(row.Key) != string(want) {
				panic(fmt.Sprintf("the first key is %q, want %q", row.Key, want))
			}
			return pages
		}
		if !m.More {
			panic("there is no key")
		}
		if reverse {
			c.End = m.Resume
		} else {
			c.Start = m.Resume
		}
	}
}

func newQueueBench(b *testing.B) (*queueBench, func()) {
	r, g, done := benchReplica(b)
	q := &queueBench{b: b, r: r, g: g}
	q.do(&kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("queue+")}}})
	q.put(301_000)
	return q, done
}

// BenchmarkFirstKeyBehindDeleted reads the first key behind 300,000 deleted ones.
func BenchmarkFirstKeyBehindDeleted(b *testing.B) {
	for _, reverse := range []bool{false, true} {
		b.Run(fmt.Sprintf("reverse=%t", reverse), func(b *testing.B) {
			q, done := newQueueBench(b)
			defer done()
			q.take(300_000)
			if err := q.r.state.Flush(); err != nil {
				b.Fatal(err)
			}
			b.Run("first", func(b *testing.B) {
				pages := 0
				for b.Loop() {
					q.r.m.Vacant.Reset()
					pages = q.head(reverse)
				}
				b.ReportMetric(float64(pages), "pages")
			})
			b.Run("again", func(b *testing.B) {
				q.head(reverse)
				for b.Loop() {
					q.head(reverse)
				}
			})
		})
	}
}

// BenchmarkQueue puts a key at the end, reads the first one, and takes that.
func BenchmarkQueue(b *testing.B) {
	q, done := newQueueBench(b)
	defer done()
	q.take(300_000)
	for b.Loop() {
		q.put(1)
		q.head(false)
		q.take(1)
	}
}
