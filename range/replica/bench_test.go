package replica

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// instantGroup commits what is proposed at once, and has it applied when deliver is called, as an
// apply worker would.
type instantGroup struct {
	mu      sync.Mutex
	entries []group.Entry
	next    uint64
	replica *Replica
	keep    bool
	kept    []group.Entry
}

func (g *instantGroup) Propose(term uint64, data []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next++
	g.entries = append(g.entries, group.Entry{Index: g.next, Term: term, Data: data})
	return nil
}

func (g *instantGroup) ProposeChange(term uint64, data []byte, _ group.Configuration) error {
	return g.Propose(term, data)
}

func (g *instantGroup) deliver() bool {
	g.mu.Lock()
	entries := g.entries
	g.entries = nil
	if g.keep {
		g.kept = append(g.kept, entries...)
	}
	g.mu.Unlock()
	if len(entries) == 0 {
		return false
	}
	if err := g.replica.Apply(entries); err != nil {
		panic(err)
	}
	return true
}

func (g *instantGroup) ReadIndex(done func(error))            { done(nil) }
func (g *instantGroup) Lease() (uint64, bool)                 { return 1, true }
func (g *instantGroup) LeaseLeft() time.Duration              { return time.Hour }
func (g *instantGroup) Leader() (keys.ReplicaID, uint64)      { return 1, 1 }
func (g *instantGroup) Appended() uint64                      { return 0 }
func (g *instantGroup) Wake()                                 {}
func (g *instantGroup) TransferLeader(uint64, keys.ReplicaID) {}

func benchReplica(b testing.TB) (*Replica, *instantGroup, func()) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		b.Fatal(err)
	}
	node := &Node{Node: config.Node{Clock: hlc.NewClock(nil, nil)}}
	if err := node.Prepare(); err != nil {
		b.Fatal(err)
	}
	g := &instantGroup{}
	r, err := New(Config{Partition: testPartition(1), ReplicaID: 1, State: state,
		Group: g, Node: node})
	if err != nil {
		b.Fatal(err)
	}
	g.replica = r
	r.LeadershipChanged(group.Leadership{Term: 1, Leader: 1, IsLeader: true})
	g.next++
	if err := r.Apply([]group.Entry{{Index: 1, Term: 1}}); err != nil {
		b.Fatal(err)
	}
	return r, g, func() {
		r.Close()
		node.Pool.Close()
		node.Long.Close()
		state.Close()
	}
}

func put(i int, sequence uint64, session *kvpb.Timestamp) *kvpb.Request {
	return &kvpb.Request{Id: sequence, Generation: 1, Term: 1, Sequence: sequence, Session: session,
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: fmt.Appendf(nil, "key-%09d",
			i*7919%100_000), Value: make([]byte, 256)}}}
}

// BenchmarkPut is one small put through evaluation and apply on the leader; n writes share an
// entry. With held there are so many spans that transactions hold, elsewhere in the partition.
func BenchmarkPut(b *testing.B) {
	for _, c := range []struct{ n, held int }{{n: 1}, {n: 8}, {n: 64}, {n: 8, held: 1},
		{n: 8, held: 256}} {
		n, name := c.n, fmt.Sprintf("share=%d", c.n)
		if c.held > 0 {
			name += fmt.Sprintf(",held=%d", c.held)
		}
		b.Run(name, func(b *testing.B) {
			r, g, done := benchReplica(b)
			defer done()
			for i := range c.held {
				span := []*kvpb.KeySpan{{Start: fmt.Appendf(nil, "held-%04d", i),
					End: fmt.Appendf(nil, "held-%04d-", i)}}
				r.m.Mu.Locks.AcquireSpans(command.EachSpan(span), txn.Info{ID: txn.ID{byte(i), 1}},
					concurrency.State{})
			}
			reply := func(*kvpb.Response) {}
			session := &kvpb.Timestamp{Wall: uint64(time.Now().Add(-time.Second).UnixNano())}
			requests := make([]*kvpb.Request, b.N)
			for i := range requests {
				requests[i] = put(i, uint64(i+1), session)
			}
			pending := make([]config.Pending, 0, n)
			b.ReportAllocs()
			b.ResetTimer()
			defer reportCPU(b)()
			for i := 0; i < b.N; {
				pending = pending[:0]
				for ; len(pending) < n && i < b.N; i++ {
					pending = append(pending, config.Pending{Client: 1, Request: requests[i], Reply: reply,
						Arrived: time.Now()})
				}
				r.Submit(pending)
				for g.deliver() {
				}
			}
		})
	}
}

// BenchmarkFollowerApply applies entries that a leader made, each with n puts.
func BenchmarkFollowerApply(b *testing.B) {
	for _, n := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("share=%d", n), func(b *testing.B) {
			r, g, done := benchReplica(b)
			defer done()
			g.keep = true
			pending := make([]config.Pending, 0, n)
			session := &kvpb.Timestamp{Wall: uint64(time.Now().Add(-time.Second).UnixNano())}
			for i := 0; i < b.N; {
				pending = pending[:0]
				for ; len(pending) < n && i < b.N; i++ {
					pending = append(pending, config.Pending{Client: 1, Request: put(i, uint64(i+1), session),
						Reply: func(*kvpb.Response) {}, Arrived: time.Now()})
				}
				r.Submit(pending)
				for g.deliver() {
				}
			}
			follower, _, closeFollower := benchReplica(b)
			defer closeFollower()
			follower.self = 2
			follower.LeadershipChanged(group.Leadership{Term: 1, Leader: 1})
			b.ReportAllocs()
			b.ResetTimer()
			defer reportCPU(b)()
			for i := range g.kept {
				if err := follower.Apply(g.kept[i : i+1]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func benchFilled(b testing.TB, keys int) (*Replica, func()) {
	r, g, done := benchReplica(b)
	for i := range keys {
		r.Submit([]config.Pending{{Client: 1, Request: put(i, uint64(i+1), nil),
			Reply: func(*kvpb.Response) {}, Arrived: time.Now()}})
		for g.deliver() {
		}
	}
	if err := r.state.Flush(); err != nil {
		b.Fatal(err)
	}
	return r, done
}

// BenchmarkGet is one read of the latest value by lease, from tables.
func BenchmarkGet(b *testing.B) {
	r, done := benchFilled(b, 100_000)
	defer done()
	reply := func(response *kvpb.Response) {
		if !response.GetGet().Found {
			panic("absent")
		}
	}
	requests := make([]*kvpb.Request, 1000)
	for i := range requests {
		requests[i] = &kvpb.Request{Generation: 1, Term: 1,
			Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: fmt.Appendf(nil, "key-%09d", i*97)}}}
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer reportCPU(b)()
	for i := range b.N {
		r.Submit([]config.Pending{{Client: 1, Request: requests[i%len(requests)], Reply: reply,
			Arrived: time.Time{}}})
	}
}

// BenchmarkScan is a page of 100 rows.
func BenchmarkScan(b *testing.B) {
	r, done := benchFilled(b, 100_000)
	defer done()
	answered := make(chan struct{}, 1)
	reply := func(response *kvpb.Response) {
		if len(rowsOf(response.GetScan().GetRows())) != 100 {
			panic("rows are missing")
		}
		answered <- struct{}{}
	}
	b.ReportAllocs()
	b.ResetTimer()
	defer reportCPU(b)()
	for i := range b.N {
		q := &kvpb.Request{Generation: 1, Term: 1,
			Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: fmt.Appendf(nil, "key-%09d",
				i*97%90_000), MaxRows: 100}}}
		r.Submit([]config.Pending{{Client: 1, Request: q, Reply: reply}})
		<-answered
	}
}

// BenchmarkIdle reports the memory of a replica that has been used and is idle.
func BenchmarkIdle(b *testing.B) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
	if err != nil {
		b.Fatal(err)
	}
	defer state.Close()
	node := &Node{Node: config.Node{Clock: hlc.NewClock(nil, nil)}}
	if err := node.Prepare(); err != nil {
		b.Fatal(err)
	}
	defer node.Pool.Close()
	defer node.Long.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	replicas := make([]*Replica, 0, 10_000)
	groups := make([]*instantGroup, 0, 10_000)
	for i := range 10_000 {
		p := testPartition(3)
		p.Id = uint64(100 + i)
		g := &instantGroup{next: 1}
		r, err := New(Config{Partition: p, ReplicaID: 1, State: state, Group: g, Node: node})
		if err != nil {
			b.Fatal(err)
		}
		g.replica = r
		r.LeadershipChanged(group.Leadership{Term: 1, Leader: 1, IsLeader: true})
		if err := r.Apply([]group.Entry{{Index: 1, Term: 1}}); err != nil {
			b.Fatal(err)
		}
		replicas, groups = append(replicas, r), append(groups, g)
	}
	if err := state.Flush(); err != nil {
		b.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(replicas)), "B/replica")
	for range b.N {
	}
	runtime.KeepAlive(groups)
	for _, r := range replicas {
		r.Close()
	}
}
