package replica

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// busyGroup is a group whose log, leader's apply worker and follower each have a goroutine.
type busyGroup struct {
	mu       sync.Mutex
	changed  sync.Cond
	log      []group.Entry
	term     uint64
	leads    bool
	leased   bool
	reads    []func(error)
	stopped  bool
	replicas [2]*Replica
	workers  sync.WaitGroup
	// elections come one at a time.
	elections sync.Mutex
}

func (g *busyGroup) Propose(term uint64, data []byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leads && g.term == term && !g.stopped {
		g.log = append(g.log, group.Entry{Index: uint64(len(g.log) + 1), Term: term, Data: data})
		g.changed.Broadcast()
	}
	return nil
}

func (g *busyGroup) ProposeChange(term uint64, data []byte, _ group.Configuration) error {
	return g.Propose(term, data)
}

func (g *busyGroup) ReadIndex(done func(error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reads = append(g.reads, done)
	g.changed.Broadcast()
}

func (g *busyGroup) Lease() (uint64, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term, g.leads && g.leased
}

func (g *busyGroup) LeaseLeft() time.Duration {
	if _, leased := g.Lease(); !leased {
		return 0
	}
	return time.Hour
}

func (g *busyGroup) Appended() uint64 { return 0 }

func (g *busyGroup) Leader() (keys.ReplicaID, uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return 1, g.term
}

func (g *busyGroup) Wake()                                 {}
func (g *busyGroup) TransferLeader(uint64, keys.ReplicaID) {}

// run applies what is committed, in random bites, and answers read indexes.
func (g *busyGroup) run(r *Replica, leader bool, t *testing.T) {
	defer g.workers.Done()
	random := rand.New(rand.NewPCG(1, uint64(r.self)))
	for {
		index, _ := r.Applied()
		g.mu.Lock()
		for !g.stopped && int(index) == len(g.log) && (!leader || len(g.reads) == 0) {
			g.changed.Wait()
		}
		if g.stopped && int(index) == len(g.log) && len(g.reads) == 0 {
			g.mu.Unlock()
			return
		}
		// What is applied is as far as any read index given now.
		var reads []func(error)
		entries := append([]group.Entry(nil), g.log[index:]...)
		if leader && len(entries) < 8 {
			reads, g.reads = g.reads, nil
		}
		g.mu.Unlock()
		for len(entries) > 0 {
			n := 1 + random.IntN(len(entries))
			if err := r.Apply(entries[:n]); err != nil {
				t.Error(err)
				return
			}
			entries = entries[n:]
		}
		for _, done := range reads {
			done(nil)
		}
	}
}

// disturb takes or gives back the lease, and sometimes begins a new leadership.
func (g *busyGroup) disturb(random *rand.Rand) {
	g.elections.Lock()
	defer g.elections.Unlock()
	g.mu.Lock()
	g.leased = random.IntN(3) > 0
	g.mu.Unlock()
	if random.IntN(3) == 0 {
		g.reelect()
	}
}

// reelect ends the leadership and begins the next one, of the same replica.
func (g *busyGroup) reelect() {
	g.mu.Lock()
	g.term++
	g.leads = false
	term := g.term
	g.mu.Unlock()
	g.replicas[0].LeadershipChanged(group.Leadership{Term: term})
	g.mu.Lock()
	g.leads = true
	g.log = append(g.log, group.Entry{Index: uint64(len(g.log) + 1), Term: term})
	g.changed.Broadcast()
	g.mu.Unlock()
	g.replicas[0].LeadershipChanged(group.Leadership{Term: term, Leader: 1, IsLeader: true})
}

// Clients write, swap, read and scan a few hot keys from many goroutines, while leadership and
// lease come and go. Everything read is at least as new as what was known before, retries are
// applied once, and the follower ends up the same.
func TestConcurrentClients(t *testing.T) {
	g := &busyGroup{leased: true}
	g.changed.L = &g.mu
	var closers []func()
	for i := range g.replicas {
		state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state"})
		if err != nil {
			t.Fatal(err)
		}
		node := &Node{Node: config.Node{Clock: hlc.NewClock(nil, nil)}}
		if err := node.Prepare(); err != nil {
			t.Fatal(err)
		}
		r, err := New(Config{Partition: testPartition(2), ReplicaID: keys.ReplicaID(i + 1),
			State: state, Group: g, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		g.replicas[i] = r
		closers = append(closers, func() {
			r.Close()
			node.Pool.Close()
			node.Long.Close()
			state.Close()
		})
	}
	g.workers.Add(2)
	go g.run(g.replicas[0], true, t)
	go g.run(g.replicas[1], false, t)
	g.reelect()

	known := knowledge{versions: map[string]hlc.Timestamp{}}
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() { runClient(t, g, &known, uint64(i+1)) })
	}
	clients.Wait()
	g.mu.Lock()
	g.stopped = true
	g.changed.Broadcast()
	g.mu.Unlock()
	g.workers.Wait()

	var sums [2]uint64
	for i, r := range g.replicas {
		var err error
		if _, sums[i], err = r.Checksum(); err != nil {
			t.Fatal(err)
		}
	}
	if sums[0] != sums[1] {
		t.Error("the follower differs")
	}
	checkAppliedOnce(t, g.replicas[0])
	for _, c := range closers {
		c()
	}
}

// knowledge is the newest version of each key that any client was told of.
type knowledge struct {
	sync.Mutex
	versions map[string]hlc.Timestamp
}

func (k *knowledge) of(key string) hlc.Timestamp {
	k.Lock()
	defer k.Unlock()
	return k.versions[key]
}

func (k *knowledge) learn(key string, ts hlc.Timestamp) {
	k.Lock()
	defer k.Unlock()
	k.versions[key] = hlc.Max(k.versions[key], ts)
}

func runClient(t *testing.T, g *busyGroup, known *knowledge, client uint64) {
	random := rand.New(rand.NewPCG(client, 2))
	session := hlc.Timestamp{Wall: time.Now().UnixNano()}
	answers := make(chan *kvpb.Response, 1)
	call := func(q *kvpb.Request) *kvpb.Response {
		for {
			_, term := g.Leader()
			attempt := &kvpb.Request{Id: q.Id, Generation: 1, Term: term, Sequence: q.Sequence,
				Session: q.Session, Command: q.Command}
			g.replicas[0].Submit([]config.Pending{{Client: client, Request: attempt, Arrived: time.Now(),
				Reply: func(r *kvpb.Response) { answers <- kept(r) }}})
			response := <-answers
			session = hlc.Max(session, wire.FromTimestamp(response.Now))
			if response.Error == nil {
				return response
			}
			switch response.Error.Code {
			case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_OUTCOME_UNKNOWN, kvpb.ErrorCode_NO_QUORUM,
				kvpb.ErrorCode_OVERLOADED:
			default:
				t.Errorf("%s", describe(response))
				return response
			}
		}
	}
	for i := range 300 {
		key := []byte{"bcde"[random.IntN(4)]}
		before := known.of(string(key))
		q := &kvpb.Request{Id: uint64(i), Sequence: uint64(i + 1), Session: wire.ToTimestamp(session)}
		if random.IntN(60) == 0 {
			g.disturb(random)
		}
		var version *kvpb.Timestamp
		switch random.IntN(5) {
		case 0, 1:
			q.Command = &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: key,
				Value: fmt.Appendf(nil, "%d-%d", client, i)}}
			version = call(q).GetPut().GetVersion()
		case 2:
			q.Session = nil
			q.Command = &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: key}}
			version = call(q).GetGet().GetVersion()
		case 3:
			expected := &kvpb.Timestamp{Wall: uint64(before.Wall), Logical: before.Logical}
			q.Command = &kvpb.Request_CompareAndSwap{CompareAndSwap: &kvpb.CompareAndSwapRequest{Key: key,
				Expected: &kvpb.CompareAndSwapRequest_Version{Version: expected}, NewValue: []byte("x")}}
			if s := call(q).GetCompareAndSwap(); s.GetSwapped() {
				version = s.Version
			} else {
				version = s.GetCurrentVersion()
			}
		case 4:
			q.Command = &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{}}
			for _, p := range rowsOf(call(q).GetScan().GetRows()) {
				if string(p.Key) == string(key) {
					version = wire.ToTimestamp(p.Version)
				}
			}
		}
		if got := wire.FromTimestamp(version); got.Less(before) {
			t.Errorf("client %d: %v gives version %s, %s was known before", client, q, got, before)
		} else {
			known.learn(string(key), got)
		}
	}
}

// checkAppliedOnce looks through all versions for requests that were applied twice.
func checkAppliedOnce(t *testing.T, r *Replica) {
	span := keys.DataSpan(keys.PartitionSpan(r.Descriptor()))
	i, err := r.state.NewIter(&pebble.IterOptions{LowerBound: span.Start, UpperBound: span.End})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	seen := map[string]bool{}
	for i.First(); i.Valid(); i.Next() {
		key, ts, err := keys.DecodeVersioned(i.Key())
		if err != nil {
			t.Fatal(err)
		}
		h, _, err := mvcc.DecodeHeader(i.Value())
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("%q %v", key, h.Request)
		if seen[id] {
			t.Errorf("request %s was applied twice, once at %s", id, ts)
		}
		seen[id] = true
	}
	if len(seen) == 0 {
		t.Error("nothing was written")
	}
}
