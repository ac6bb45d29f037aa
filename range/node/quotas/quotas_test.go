package quotas

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// node is a node with partitions whose keyspaces are their ids divided by 100.
type node struct {
	*Quotas
	hurried int
	// refusals are the errors of the last messages.
	refusals []*kvpb.Error
}

func newNode(nodes int, keyspaces ...*clusterpb.Keyspace) *node {
	n := &node{}
	n.Quotas = New(1, n, hosted.NewMetrics(nil))
	n.Update(keyspaces, nil, nodes)
	return n
}

// KeyspaceOf implements Node.
func (n *node) KeyspaceOf(partition uint64) uint64 { return partition / 100 }

// Refuse implements Node.
func (n *node) Refuse(q *kvpb.Request, e *kvpb.Error, reply func(*kvpb.Response)) {
	reply(&kvpb.Response{Id: q.Id, Error: e})
}

// HurryHeartbeat implements Node.
func (n *node) HurryHeartbeat() { n.hurried++ }

func orders(requests, bytes uint64) *clusterpb.Keyspace {
	return &clusterpb.Keyspace{Id: 7, Name: "orders", QuotaRequestsPerSecond: requests,
		QuotaBytesPerSecond: bytes}
}

func get(partition uint64) *kvpb.Request {
	return &kvpb.Request{Partition: partition, Term: 1, Command: &kvpb.Request_Get{
		Get: &kvpb.GetRequest{Key: []byte("key")}}}
}

func put(size int) *kvpb.Request {
	return &kvpb.Request{Partition: 701, Term: 1, Command: &kvpb.Request_Put{
		Put: &kvpb.PutRequest{Key: []byte("key"), Value: make([]byte, size)}}}
}

func answer(size int) *kvpb.Response {
	return &kvpb.Response{Result: &kvpb.Response_Get{Get: &kvpb.GetResponse{
		Value: make([]byte, size)}}}
}

// send sends a message, answers what is let in with an answer, and returns how many requests were.
func (n *node) send(response *kvpb.Response, batch ...*kvpb.Request) int {
	n.refusals = nil
	answered := map[uint64]int{}
	for i, q := range batch {
		q.Id = uint64(i)
	}
	rest, reply := n.Filter(batch, func(r *kvpb.Response) {
		answered[r.Id]++
		if r.Error != nil {
			n.refusals = append(n.refusals, r.Error)
		}
	}, time.Now())
	for _, q := range rest {
		r := proto.Clone(response).(*kvpb.Response)
		r.Id = q.Id
		reply(r)
	}
	if len(answered) != len(batch) {
		panic(fmt.Sprintf("%d answers to %d requests", len(answered), len(batch)))
	}
	return len(rest)
}

// offer sends a request every so often for a time, and returns how many were let in.
func (n *node) offer(d, every time.Duration, request func() *kvpb.Request,
	response *kvpb.Response) int {
	in := 0
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		in += n.send(response, request())
	}
	return in
}

func aGet() *kvpb.Request { return get(701) }

// Requests are let in at the rate of the quota, after those of one second at once. The others are
// refused with all that the caller needs.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(100, 0))
		if in := n.offer(10*time.Second, time.Millisecond, aGet, answer(10)); in < 1090 || in > 1101 {
			t.Errorf("%d requests of 100 a second in 10 s", in)
		}
		n.send(answer(0), aGet(), aGet(), aGet())
		if len(n.refusals) < 2 {
			t.Fatalf("refused: %v", n.refusals)
		}
		e := n.refusals[0]
		for _, part := range []string{`"orders"`, "100 requests a second", "node n1",
			"tidemark keyspace alter orders --quota-requests"} {
			if !strings.Contains(e.Message, part) {
				t.Errorf("%q lacks %q", e.Message, part)
			}
		}
		if e.Code != kvpb.ErrorCode_OVERLOADED || e.Cause != kvpb.ErrorCause_CAUSE_QUOTA {
			t.Errorf("%v", e)
		}
		// Another keyspace is not concerned.
		if in := n.send(answer(0), get(801), aGet(), get(801)); in < 2 {
			t.Errorf("%d of 2 other requests", in)
		}
	})
}

// Refused requests are told to come again one after the other, at the rate of the quota.
func TestRefusedRequestsAreToldWhenToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(100, 0))
		batch := make([]*kvpb.Request, 150)
		for i := range batch {
			batch[i] = aGet()
		}
		if in := n.send(answer(0), batch...); in != 100 {
			t.Fatalf("%d requests at once", in)
		}
		for i, e := range n.refusals {
			wait := time.Duration(e.RetryAfterMicros) * time.Microsecond
			if want := time.Duration(i+1) * 10 * time.Millisecond; wait < want-time.Millisecond ||
				wait > want+time.Millisecond {
				t.Fatalf("refusal %d: %s, want %s", i, wait, want)
			}
		}
		// Those who come when they were told to are let in.
		for i := range n.refusals {
			time.Sleep(10*time.Millisecond + time.Microsecond)
			if n.send(answer(0), aGet()) != 1 {
				t.Fatalf("the %d. request that comes again is refused", i+1)
			}
		}
		// Nobody waits for longer than a share of the quota may take to change.
		for range 1000 {
			n.send(answer(0), aGet())
			for _, e := range n.refusals {
				if time.Duration(e.RetryAfterMicros)*time.Microsecond > mostWait {
					t.Fatalf("wait %v", e)
				}
			}
		}
	})
}

// Bytes of requests and of answers count, those of answers afterwards: they may leave a debt, which
// the next requests wait for.
func TestThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(0, 10<<10))
		if n.send(answer(50<<10), aGet()) != 1 {
			t.Fatal("the first request is refused")
		}
		for i := range 40 {
			if n.send(answer(0), aGet()) != 0 {
				t.Fatalf("a request is let in after %d00 ms, for 50 KiB at 10 KiB a second", i)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if e := n.refusals[0]; !strings.Contains(e.Message, "10 KiB a second") ||
			!strings.Contains(e.Message, "--quota-throughput") || e.RetryAfterMicros == 0 {
			t.Errorf("%v", e)
		}
		time.Sleep(5 * time.Second)
		// From here on 1 KiB a request, 10 a second.
		in := n.offer(20*time.Second, 10*time.Millisecond,
			func() *kvpb.Request { return put(1<<10 - 30) }, answer(0))
		if in < 180 || in > 215 {
			t.Errorf("%d requests of 1 KiB in 20 s", in)
		}
	})
}

// What the node was too busy for has paid for nothing: it did not run, and comes again.
func TestRefusedRequestsPayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(2, 10<<10))
		busy := &kvpb.Response{Error: &kvpb.Error{Code: kvpb.ErrorCode_OVERLOADED,
			RetryAfterMicros: 1000}}
		for i := range 20 {
			if n.send(busy, put(8<<10)) != 1 {
				t.Fatalf("attempt %d is refused: %v", i, n.refusals[0])
			}
		}
		if n.send(answer(8<<10), put(8<<10)) != 1 {
			t.Error("the first request that runs is refused")
		}
		if n.send(answer(0), put(8<<10)) != 0 {
			t.Error("a request that runs pays nothing")
		}
	})
}

// Both quotas count. What the one refuses takes nothing of the other.
func TestBothQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(10, 1<<20))
		in := n.offer(10*time.Second, time.Millisecond,
			func() *kvpb.Request { return put(50 << 10) }, answer(0))
		if in < 105 || in > 111 {
			t.Errorf("%d requests, at 10 a second for 10 s", in)
		}
		if k := (*n.rated.Load())[7]; k.mu.bytes.bucket.tokens < 0.4*(1<<20) {
			t.Errorf("refused requests have taken bytes: %v left", k.mu.bytes.bucket.tokens)
		}
	})
}

// What is asked for is known, whether it is let in or not.
func TestDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(3, orders(30, 3<<20), &clusterpb.Keyspace{Id: 8, Name: "idle",
			QuotaRequestsPerSecond: 1}, &clusterpb.Keyspace{Id: 9, Name: "free"})
		if d := n.Demands(); len(d) != 0 {
			t.Errorf("at first: %v", d)
		}
		n.offer(20*time.Second, 10*time.Millisecond, aGet, answer(10<<10))
		d := n.Demands()
		if len(d) != 1 || d[0].Keyspace != 7 {
			t.Fatalf("%v", d)
		}
		near := func(what string, got, want uint64) {
			if math.Abs(float64(got)/float64(want)-1) > 0.1 {
				t.Errorf("%s: %d a second, want about %d", what, got, want)
			}
		}
		near("requests", d[0].RequestsPerSecond, 100)
		// Only a tenth is let in. The answers to the others count as usual ones.
		near("bytes", d[0].BytesPerSecond, 100*(10<<10+40))
		time.Sleep(30 * time.Second)
		if d := n.Demands(); len(d) != 0 {
			t.Errorf("after half a minute of rest: %v", d)
		}
		if n.hurried < 15 || n.hurried > 21 {
			t.Errorf("%d hurried heartbeats in 20 s", n.hurried)
		}
	})
}

// A node has its part of a quota: as the core says, and until then as if all nodes were asked for
// the same. A changed quota counts at once.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(4, orders(400, 0))
		rate := func(want int) {
			t.Helper()
			n.offer(time.Second, time.Millisecond, aGet, answer(0)) // what the bucket held
			in := n.offer(10*time.Second, time.Millisecond, aGet, answer(0))
			if in < 10*want-want/10-1 || in > 10*want+want/10+1 {
				t.Errorf("%d requests in 10 s, want %d a second", in, want)
			}
		}
		rate(100)
		n.Update(nil, nil, 2)
		rate(200)
		n.Take([]*clusterpb.KeyspaceShare{{Keyspace: 7, RequestsMillionths: proto.Uint32(800_000)},
			{Keyspace: 12, RequestsMillionths: proto.Uint32(5)}})
		rate(320)
		n.Update(nil, nil, 3) // the core knows better
		n.Take(nil)
		n.Take([]*clusterpb.KeyspaceShare{{Keyspace: 7}})
		rate(320)
		n.Update([]*clusterpb.Keyspace{orders(100, 0)}, nil, 3)
		rate(80)
		n.Update([]*clusterpb.Keyspace{orders(0, 0)}, nil, 3)
		if n.rated.Load() != nil || n.offer(time.Second, time.Millisecond, aGet, answer(0)) != 1000 {
			t.Error("a quota that was removed counts")
		}
		n.Update([]*clusterpb.Keyspace{orders(1, 0)}, nil, 3)
		n.Update(nil, []uint32{7}, 3)
		if n.rated.Load() != nil {
			t.Error("the quota of a keyspace that is gone counts")
		}
	})
}

// What others wait for, and what no client asks for, is not limited, and does not count.
func TestWhatDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1, orders(1, 0))
		n.send(answer(0), aGet())
		background, admit, looking := aGet(), aGet(), put(1)
		background.Background, admit.Admit, looking.Term = true, true, 0
		for _, q := range []*kvpb.Request{background, admit, looking,
			{Partition: 701, Term: 1, Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{}}},
			{Partition: 701, Term: 1, Command: &kvpb.Request_EndTransaction{
				EndTransaction: &kvpb.EndTransactionRequest{}}},
			{Partition: 701, Term: 1, Command: &kvpb.Request_Load{Load: &kvpb.LoadRequest{}}},
			{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}} {
			if n.send(answer(0), q) != 1 {
				t.Errorf("refused: %v", q)
			}
		}
		scan := &kvpb.Request{Command: &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{
			Partitions: []*kvpb.PartitionRoute{{Partition: 701}}}}}
		many := &kvpb.Request{Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{
			Partitions: []*kvpb.PartitionKeys{{Partition: 701}}}}}
		if n.send(answer(0), scan, many, put(1), get(801)) != 1 {
			t.Errorf("let in, beyond the quota: %v", n.refusals)
		}
	})
}

// The quota of stored bytes goes by what the core says.
func TestSize(t *testing.T) {
	k := &clusterpb.Keyspace{Id: 7, Name: "orders", QuotaBytes: 10 << 20}
	n := newNode(3, k)
	used := func(bytes uint64) {
		n.Take([]*clusterpb.KeyspaceShare{{Keyspace: 7, UsedBytes: &bytes}})
	}
	if n.Full(7) {
		t.Error("full before the size is known")
	}
	used(10<<20 - 1)
	if n.Full(7) || n.Full(8) {
		t.Error("full")
	}
	used(10 << 20)
	n.Take([]*clusterpb.KeyspaceShare{{Keyspace: 7}})
	if !n.Full(7) {
		t.Error("not full at the quota")
	}
	text := n.Quotas.Refuse(7)
	for _, part := range []string{`"orders"`, "10 MiB", "10485760 bytes",
		"alter orders --quota-bytes"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q lacks %q", text, part)
		}
	}
	k = proto.Clone(k).(*clusterpb.Keyspace)
	k.QuotaBytes++
	n.Update([]*clusterpb.Keyspace{k}, nil, 3)
	if n.Full(7) {
		t.Error("full below a raised quota")
	}
	k.QuotaBytes = 0
	n.Update([]*clusterpb.Keyspace{k}, nil, 3)
	if n.sized.Load() != nil || n.Quotas.Refuse(7) == "" {
		t.Error("a quota that was removed")
	}
}

// BenchmarkFilter is a message of eight requests, without any quota and with one.
func BenchmarkFilter(b *testing.B) {
	for name, n := range map[string]*node{"none": newNode(1), "other": newNode(1, &clusterpb.Keyspace{
		Id: 9, QuotaRequestsPerSecond: 1}), "requests": newNode(1, orders(1<<40, 0)),
		"both": newNode(1, orders(1<<40, 1<<40))} {
		b.Run(name, func(b *testing.B) {
			batch := make([]*kvpb.Request, 8)
			for i := range batch {
				batch[i] = aGet()
			}
			b.ReportAllocs()
			for b.Loop() {
				n.Filter(batch, func(*kvpb.Response) {}, time.Now())
			}
		})
	}
}
