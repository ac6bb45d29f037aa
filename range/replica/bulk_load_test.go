package replica

import (
	"bytes"
	"context"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// loadOf loads keys and values, in any order.
func loadOf(pairs ...string) *kvpb.Request {
	var all [][2]string
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, [2]string{pairs[i], pairs[i+1]})
	}
	sort.Slice(all, func(i, j int) bool { return all[i][0] < all[j][0] })
	var w block.Writer
	for _, pair := range all {
		if err := w.Add(block.Record{Key: []byte(pair[0]), Value: []byte(pair[1])}); err != nil {
			panic(err)
		}
	}
	c := &kvpb.LoadRequest{First: []byte(all[0][0]), Last: []byte(all[len(all)-1][0]),
		Records: uint32(w.Records()), Size: w.Size()}
	c.Block = w.Finish()
	return &kvpb.Request{Command: &kvpb.Request_Load{Load: c}}
}

// withLifetimes gives the records of a load lifetimes of their own.
func withLifetimes(c *kvpb.LoadRequest, lifetime func(key []byte) keys.Lifetime) {
	var w block.Writer
	for _, r := range recordsIn(c.Block) {
		r.Lifetime = lifetime(r.Key)
		if err := w.Add(r); err != nil {
			panic(err)
		}
	}
	c.Block = w.Finish()
}

// recordsIn are the records of a block.
func recordsIn(data []byte) (all []block.Record) {
	r, err := block.Open(data)
	if err != nil {
		panic(err)
	}
	for {
		record, ok, err := r.Next()
		if err != nil {
			panic(err)
		}
		if !ok {
			return all
		}
		record.Key = bytes.Clone(record.Key)
		all = append(all, record)
	}
}

// pairsIn are the keys and values of a block.
func pairsIn(data []byte) (pairs [][2]string) {
	for _, r := range recordsIn(data) {
		pairs = append(pairs, [2]string{string(r.Key), string(r.Value)})
	}
	return pairs
}

func pairsOf(q *kvpb.Request) [][2]string { return pairsIn(q.GetLoad().Block) }

// manyOf loads n records with a prefix, large enough for a table.
func manyOf(prefix string, n int, value string) *kvpb.Request {
	var pairs []string
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("%s%06d", prefix, i),
			value+strings.Repeat(fmt.Sprint(i%7), 200))
	}
	return loadOf(pairs...)
}

// newLoadTest is a cluster that commits blocks of any size as tables, or of none.
func newLoadTest(t *testing.T, replicas int, tables bool) *splitTest {
	limits := config.Limits{LoadTableBytes: 1 << 30}
	if tables {
		limits.LoadTableBytes = 1
	}
	s := &splitTest{testCluster: newTestCluster(t, replicas, limits), t: t}
	s.auto = true
	s.elect(s.members[0])
	s.members[0].catchUp(-1)
	return s
}

// eachWay runs a test with blocks that become tables, and with blocks that become batches.
func eachWay(t *testing.T, replicas int, test func(t *testing.T, s *splitTest)) {
	for _, tables := range []bool{true, false} {
		t.Run(fmt.Sprintf("tables=%v", tables), func(t *testing.T) {
			s := newLoadTest(t, replicas, tables)
			defer s.close()
			test(t, s)
		})
	}
}

func (s *splitTest) value(key string) string {
	s.t.Helper()
	g := s.must(s.ask(getOf(key))).GetGet()
	if !g.Found {
		return "-"
	}
	return string(g.Value)
}

// What was loaded is there on every replica, counted, and only what differs is written again.
func TestLoad(t *testing.T) {
	eachWay(t, 3, func(t *testing.T, s *splitTest) {
		leader := s.members[0]
		r := s.must(s.ask(loadOf("b", "1", "d", "2", "f", "3"))).GetLoad()
		if r.Written != 3 || r.Present != 0 || r.Version == nil {
			t.Fatalf("answered %v", r)
		}
		recount(t, leader.state, 100)
		if got := s.value("d"); got != "2" {
			t.Errorf("d is %q", got)
		}
		// The same again, and in another block.
		for _, again := range []*kvpb.Request{loadOf("b", "1", "d", "2", "f", "3"),
			loadOf("d", "2", "f", "3")} {
			n := len(again.GetLoad().Block)
			r = s.must(s.ask(again)).GetLoad()
			if r.Written != 0 || int(r.Present) != len(pairsOf(again)) || r.Version != nil {
				t.Errorf("%d bytes again are answered with %v", n, r)
			}
		}
		// Others between, one changed, one deleted.
		s.must(s.ask(putOf("d", "changed")))
		s.must(s.ask(deleteOf("f")))
		r = s.must(s.ask(loadOf("a", "0", "b", "1", "c", "1", "d", "2", "f", "3", "g", "4"))).GetLoad()
		if r.Written != 5 || r.Present != 1 {
			t.Errorf("what differs is answered with %v", r)
		}
		for key, want := range map[string]string{"a": "0", "b": "1", "c": "1", "d": "2", "f": "3",
			"g": "4"} {
			if got := s.value(key); got != want {
				t.Errorf("%s is %q, want %q", key, got, want)
			}
		}
		var first storage.Recorded
		for i, m := range s.members {
			m.catchUp(-1)
			stats := recount(t, m.state, 100)
			if i == 0 {
				first = stats
			} else if stats.Stats != first.Stats {
				t.Errorf("replica %d holds %+v, replica 1 %+v", i+1, stats.Stats, first.Stats)
			}
		}
		if first.Stats.LiveKeys != 6 {
			t.Errorf("%d live keys", first.Stats.LiveKeys)
		}
	})
}

// A write after a load knows of it: what the leader remembers of its keys is old.
func TestWriteAfterLoad(t *testing.T) {
	eachWay(t, 1, func(t *testing.T, s *splitTest) {
		m := s.members[0]
		s.must(s.ask(putOf("b", "old")))
		s.must(s.ask(deleteOf("b")))
		s.must(s.ask(loadOf("b", "loaded")))
		q := putOf("b", "new")
		q.Session = wire.ToTimestamp(m.node.Clock.Now()) // so that a look at what is remembered suffices
		s.must(s.ask(q))
		if stats := recount(t, m.state, 100).Stats; stats.LiveKeys != 1 {
			t.Errorf("%+v", stats)
		}
		if got := s.value("b"); got != "new" {
			t.Errorf("b is %q", got)
		}
	})
}

// No load goes below what was read, be it the key or the span, by a leader before too, whose
// successor knows nothing of it but how far clocks can be apart.
func TestLoadAboveReads(t *testing.T) {
	for _, read := range []*kvpb.Request{getOf("c"),
		{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: []byte("a")}}}} {
		s := newLoadTest(t, 2, true)
		m := s.members[0]
		future := m.node.Clock.Now().Add(100 * time.Millisecond)
		if g := read.GetGet(); g != nil {
			g.At = wire.ToTimestamp(future)
		} else {
			read.GetScan().At = wire.ToTimestamp(future)
		}
		s.must(s.ask(read))
		r := s.must(s.ask(loadOf("b", "1", "c", "2"))).GetLoad()
		if at := wire.FromTimestamp(r.Version); !future.Less(at) {
			t.Errorf("%v was read at %s, and the load is at %s", read, stamp(future), stamp(at))
		}
		s.close()
		s = newLoadTest(t, 2, true)
		next := s.members[1]
		s.must(s.ask(read))
		s.elect(next)
		next.catchUp(-1)
		r = s.must(s.askOf(next.replica, 1, loadOf("b", "1", "c", "2"))).GetLoad()
		if at := wire.FromTimestamp(r.Version); !future.Less(at) {
			t.Errorf("%v was read at %s, and the next leader's load is at %s", read, stamp(future),
				stamp(at))
		}
		s.close()
	}
}

// While a load is on its way, reads at or above its timestamp that may see it wait, and others do
// not.
func TestReadsWhileLoading(t *testing.T) {
	eachWay(t, 1, func(t *testing.T, s *splitTest) {
		m := s.members[0]
		s.must(s.ask(putOf("x", "there")))
		before := m.node.Clock.Now()
		s.physical.Advance(time.Millisecond)
		s.mu.Lock()
		s.auto = false
		s.mu.Unlock()
		var box inbox
		send := func(id uint64, q *kvpb.Request, write bool) {
			if write {
				s.sequence++
				q.Sequence = s.sequence
			}
			q.Id, q.Generation, q.Term = id, 1, m.leadership.Term
			m.replica.Submit([]config.Pending{{Client: 1, Request: q, Arrived: time.Now(),
				Reply: box.reply}})
			s.settle()
		}
		get := func(key string, at hlc.Timestamp) *kvpb.Request {
			q := getOf(key)
			if !at.IsZero() {
				q.GetGet().At = wire.ToTimestamp(at)
			}
			return q
		}
		scan := func(start, end string) *kvpb.Request {
			return &kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: []byte(start),
				End: []byte(end)}}}
		}
		send(1, loadOf("b", "1", "d", "2"), true)
		s.physical.Advance(time.Millisecond)
		now := m.node.Clock.Now()
		send(2, get("b", before), false)
		send(3, get("x", now), false)
		send(4, scan("e", ""), false)
		send(5, get("b", hlc.Timestamp{}), false) // as of just below it
		var early []uint64
		for _, response := range box.take() {
			early = append(early, response.Id)
			if g := response.GetGet(); response.Error != nil || g != nil && response.Id != 3 && g.Found {
				t.Errorf("%s", describe(response))
			}
		}
		if fmt.Sprint(early) != "[2 3 4 5]" {
			t.Errorf("answered were %v", early)
		}
		send(6, get("b", now), false)
		send(7, scan("a", "c"), false)
		send(8, putOf("x", "later"), true)
		if got := box.take(); len(got) != 0 {
			t.Errorf("answered too early: %v", got)
		}
		for range 3 {
			m.commit(-1)
			m.catchUp(-1)
			s.settle()
		}
		var late []string
		for _, response := range box.take() {
			late = append(late, fmt.Sprint(response.Id))
			if response.Error != nil || response.Id == 6 && string(response.GetGet().Value) != "1" ||
				response.Id == 7 && len(rowsOf(response.GetScan().Rows)) != 1 {
				t.Errorf("%s", describe(response))
			}
		}
		if fmt.Sprint(late) != "[1 6 7 8]" {
			t.Errorf("answered late were %v", late)
		}
	})
}

// A load waits for a lock in its span, as a put does, and writes over what the lock leaves.
func TestLoadWaitsForLocks(t *testing.T) {
	s := newLoadTest(t, 1, true)
	defer s.close()
	m := s.members[0]
	id, began := transactionID("T"), wire.ToTimestamp(hlc.Timestamp{Wall: epoch})
	s.must(s.ask(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
		Transaction: &kvpb.Transaction{Id: id, Keyspace: 7, Anchor: []byte("c"), Begun: began,
			Started: began},
		Mutations: []*kvpb.Mutation{{Key: []byte("c"), Value: []byte("of the transaction")}},
	}}}))
	var box inbox
	q := loadOf("b", "1", "d", "2")
	s.sequence++
	q.Sequence, q.Generation, q.Term = s.sequence, 1, m.leadership.Term
	m.replica.Submit([]config.Pending{{Client: 1, Request: q, Arrived: time.Now(),
		Reply: box.reply}})
	s.settle()
	if got := box.take(); len(got) != 0 {
		t.Fatalf("a load over a lock is answered with %s", describe(got[0]))
	}
	end := &kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
		Resolutions: []*kvpb.Resolution{{Transaction: id,
			Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED}}}}}}
	s.must(s.ask(end))
	s.settle()
	if got := box.take(); len(got) != 1 || got[0].Error != nil || got[0].GetLoad().Written != 2 {
		t.Fatalf("after the lock: %v", got)
	}
	recount(t, m.state, 100)
}

// A retried load takes effect once, also if what it wrote was written over since.
func TestLoadRetried(t *testing.T) {
	eachWay(t, 1, func(t *testing.T, s *splitTest) {
		m := s.members[0]
		session := wire.ToTimestamp(m.node.Clock.Now())
		load := func() *kvpb.Request {
			q := loadOf("b", "1", "c", "2")
			q.Session = session
			return q
		}
		first := s.must(s.ask(load())).GetLoad()
		at := s.sequence
		s.must(s.ask(putOf("b", "other")))
		s.sequence = at - 1
		again := s.must(s.ask(load())).GetLoad()
		if wire.FromTimestamp(again.Version) != wire.FromTimestamp(first.Version) {
			t.Errorf("the retry is answered with %v, the first attempt with %v", again, first)
		}
		s.sequence += 10
		if got := s.value("b"); got != "other" {
			t.Errorf("the retry has written over what came later: %q", got)
		}
	})
}

// A follower that crashes while tables are not flushed has what it says that it has applied, no
// more and no less, and catches up to the same state.
func TestLoadAfterCrash(t *testing.T) {
	for flushAt := range 6 {
		s := newLoadTest(t, 2, true)
		leader, follower := s.members[0], s.members[1]
		for i := range 6 {
			s.must(s.ask(putOf(fmt.Sprintf("b%d", i), "put")))
			s.must(s.ask(manyOf(fmt.Sprintf("c%d/", i), 50, "v")))
			s.must(s.ask(manyOf(fmt.Sprintf("c%d/", i), 60, "v")))
			follower.catchUp(-1)
			if i == flushAt {
				if err := follower.state.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		durable, err := follower.replica.DurableApplied()
		if err != nil {
			t.Fatal(err)
		}
		before, _ := follower.replica.Applied()
		crashed := follower.fs.CrashClone(vfs.CrashCloneCfg{})
		follower.close()
		follower.fs = crashed
		follower.open(2)
		follower.tell(leader.leadership)
		after, _ := follower.replica.Applied()
		if after < durable || after > before {
			t.Fatalf("applied %d, durable %d before the crash, %d after it", before, durable, after)
		}
		recount(t, follower.state, 100)
		follower.catchUp(-1)
		recount(t, follower.state, 100)
		for _, m := range s.members {
			m.catchUp(-1)
		}
		_, a, _ := leader.replica.Checksum()
		_, b, _ := follower.replica.Checksum()
		if a != b {
			t.Errorf("flushed at %d: the replicas differ", flushAt)
		}
		s.close()
	}
}

// What is loaded while the right part of a split is counted counts too, on either side.
func TestTallyOfLoads(t *testing.T) {
	s := newLoadTest(t, 1, true)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(loadOf("b", "1", "m", "1", "n", "1")))
	left, right := splitAt(m.replica.Descriptor(), "m", 200)
	account, err := m.replica.Reshape().BeginSplitStats(context.Background(), right)
	if err != nil {
		t.Fatal(err)
	}
	s.must(s.ask(loadOf("c", "1", "m", "2", "o", "1")))
	if err := account.Count(context.Background(), m.node.counting); err != nil {
		t.Fatal(err)
	}
	is, err := storage.CountVersions(m.state, keys.PartitionSpan(right), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := account.Stats(); got != is {
		t.Errorf("the right part is said to hold %+v, and holds %+v", got, is)
	}
	m.replica.Reshape().EndSplitStats(account)
	if err := m.replica.Reshape().Split(context.Background(), left, right); err != nil {
		t.Fatal(err)
	}
	recount(t, m.state, 100)
	recount(t, m.state, 200)
	if e := s.ask(loadOf("b", "3", "c", "3")).GetError(); e.GetCode() != kvpb.ErrorCode_STALE_EPOCH {
		t.Errorf("a block of before the split is answered with %v", e)
	}
	e := s.askOf(m.replica, 2, loadOf("b", "3", "n", "3")).GetError()
	if e.GetCode() != kvpb.ErrorCode_KEY_OUT_OF_SPAN {
		t.Errorf("a block with keys elsewhere is answered with %v", e)
	}
}

// Blocks that are not what they say are refused, and change nothing.
func TestHostileLoads(t *testing.T) {
	s := newLoadTest(t, 1, true)
	defer s.close()
	m := s.members[0]
	s.must(s.ask(putOf("c", "there")))
	applied, _ := m.replica.Applied()
	for name, spoil := range map[string]func(*kvpb.LoadRequest){
		"no block":            func(c *kvpb.LoadRequest) { c.Block = nil },
		"a block of rubbish":  func(c *kvpb.LoadRequest) { c.Block = []byte("rubbish") },
		"no first key":        func(c *kvpb.LoadRequest) { c.First = nil },
		"another first key":   func(c *kvpb.LoadRequest) { c.First = []byte("a") },
		"another last key":    func(c *kvpb.LoadRequest) { c.Last = []byte("e") },
		"keys reversed":       func(c *kvpb.LoadRequest) { c.First, c.Last = c.Last, c.First },
		"a key elsewhere":     func(c *kvpb.LoadRequest) { c.Last = []byte("zz") },
		"another number":      func(c *kvpb.LoadRequest) { c.Records++ },
		"another size":        func(c *kvpb.LoadRequest) { c.Size++ },
		"a cut-off block":     func(c *kvpb.LoadRequest) { c.Block = c.Block[:len(c.Block)-1] },
		"more than its limit": func(c *kvpb.LoadRequest) { c.Block = make([]byte, block.MaxBody+2000) },
	} {
		q := loadOf("b", "1", "c", "2", "d", "3")
		spoil(q.GetLoad())
		e := s.ask(q).GetError()
		if e.GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT &&
			e.GetCode() != kvpb.ErrorCode_KEY_OUT_OF_SPAN {
			t.Errorf("%s: %v", name, e)
		}
	}
	if after, _ := m.replica.Applied(); after != applied {
		t.Errorf("%d entries were applied", after-applied)
	}
	if got := s.value("c") + s.value("b"); got != "there-" {
		t.Errorf("c and b are %q", got)
	}
}

// An entry that is damaged fails the replica, and never panics.
func FuzzLoadEntry(f *testing.F) {
	var w block.Writer
	for i, key := range []string{"b", "c", "d"} {
		if err := w.Add(block.Record{Key: []byte(key), Value: []byte("value"),
			Lifetime: keys.Lifetime(-i)}); err != nil {
			f.Fatal(err)
		}
	}
	good := proposal.Load{Timestamp: hlc.Timestamp{Wall: 5}, Block: w.Finish()}
	f.Add(good.Encode())
	good.Expires, good.CommitWait = 1<<63-1, true
	f.Add(good.Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := proposal.DecodeLoad(data)
		if err == nil && !bytes.Equal(l.Encode(), data) {
			t.Errorf("%x is read as %+v", data, l)
		}
	})
}
