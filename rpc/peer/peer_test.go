package peer

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

func message(index uint64, bytes int) *peerpb.RaftMessage {
	return &peerpb.RaftMessage{Group: 1, Type: 3, Index: index,
		Entries: []*peerpb.Entry{{Index: index, Data: make([]byte, bytes)}}}
}

// Messages of a class arrive in order, with pings among them, over TCP and over memnet.
func TestPeerMessages(t *testing.T) {
	for _, n := range []network{{}, {mem: memnet.New()}} {
		hosts := newHosts(t, n, 3)
		type received struct {
			from uint64
			m    *peerpb.MessageBatch
		}
		got := make(chan received, 10000)
		hosts[1].handle = func(from uint64, b *peerpb.MessageBatch) { got <- received{from, b} }
		const count = 2000
		var senders sync.WaitGroup
		for _, from := range []int{0, 2} {
			senders.Go(func() {
				for i := uint64(0); i < count; i += 2 {
					hosts[from].transport.Send(2, ClassConsensus,
						[]*peerpb.RaftMessage{message(i, int(i)), message(i+1, 5)})
				}
				hosts[from].transport.Send(2, ClassConsensus, nil)
				hosts[from].transport.Ping(2, ping(77), nil)
			})
		}
		next := map[uint64]uint64{1: 0, 3: 0}
		pings := 0
		for next[1] < count || next[3] < count || pings < 2 {
			r := <-got
			if r.m.Ping != nil {
				pings++
			}
			for _, m := range r.m.Messages {
				if m.Index != next[r.from] {
					t.Fatalf("from %d: %d came in place of %d", r.from, m.Index, next[r.from])
				}
				next[r.from]++
			}
		}
		senders.Wait()
		if n := counterValue(t, hosts[0].transport.metrics.class(ClassConsensus).messages); n != count {
			t.Fatalf("%v messages counted", n)
		}
	}
}

// A host that is gone is reported, what is sent to it is dropped without blocking, and when it is
// back messages arrive again within a second or so.
func TestPeerReconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 2)
		var got, unreachable atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		hosts[0].unreachable = func(host uint64) {
			if host != 2 {
				t.Errorf("host %d", host)
			}
			unreachable.Add(1)
		}
		send := func() {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10)})
		}
		send()
		synctest.Wait()
		if got.Load() != 1 {
			t.Fatalf("%d arrived", got.Load())
		}
		hosts[1].stop()
		synctest.Wait()
		if unreachable.Load() != 1 {
			t.Fatalf("reported %d times", unreachable.Load())
		}
		for range 600 {
			send()
			time.Sleep(100 * time.Millisecond)
		}
		if r := unreachable.Load(); r < 10 || r > 120 {
			t.Fatalf("reported %d times in a minute", r)
		}
		n.servePeers(t, "h2:1", hosts[1].transport)
		got.Store(0)
		start := time.Now()
		for got.Load() == 0 {
			send()
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Fatalf("back after %v", took)
		}
	})
}

// While a link is stalled the queue is bounded; messages are dropped and reported, Send does not
// block; after healing all is well.
func TestPeerQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 2, func(c *Config) { c.MaxQueueBytes = 1 << 20 })
		var got, unreachable atomic.Int64
		hosts[1].handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		n.mem.Cut("h1", "h2", memnet.Stall)
		for i := range uint64(100) {
			hosts[0].transport.Send(2, ClassConsensus,
				[]*peerpb.RaftMessage{message(i, 100<<10), message(i, 1)})
		}
		l := hosts[0].transport.link(2, ClassConsensus)
		l.mu.Lock()
		o := l.mu.stream.out
		l.mu.Unlock()
		o.Lock()
		if o.PendingLocked() > 1<<20+100<<10 {
			t.Errorf("%d bytes wait", o.PendingLocked())
		}
		o.Unlock()
		synctest.Wait()
		if unreachable.Load() == 0 || counterValue(t, l.counters.dropped) < 80 {
			t.Fatalf("reported %d times, %v dropped", unreachable.Load(),
				counterValue(t, l.counters.dropped))
		}
		n.mem.HealAll()
		time.Sleep(10 * time.Second)
		got.Store(0)
		// larger than the queue, and alone
		hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 10<<20)})
		time.Sleep(time.Second)
		if got.Load() != 1 {
			t.Fatalf("%d arrived", got.Load())
		}
		hosts[0].transport.Send(2, ClassConsensus,
			[]*peerpb.RaftMessage{message(1, wire.MaxMessageBytes), message(2, 1)})
		time.Sleep(time.Second)
		if got.Load() != 2 {
			t.Fatalf("%d arrived: the oversized, or not its neighbour", got.Load())
		}
	})
}

// Nothing is sent before the cluster's id is known, nor to a host whose address is not.
func TestPeerUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		var cluster atomic.Uint64
		hosts := newHosts(t, n, 2, func(c *Config) { c.Cluster = cluster.Load })
		var got, unreachable atomic.Int64
		hosts[1].handle = func(uint64, *peerpb.MessageBatch) { got.Add(1) }
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		hosts[0].transport.Send(2, ClassControl, []*peerpb.RaftMessage{message(1, 1)})
		hosts[0].transport.Ping(9, ping(1), nil)
		synctest.Wait()
		if got.Load() != 0 || unreachable.Load() != 2 {
			t.Fatalf("%d arrived, reported %d times", got.Load(), unreachable.Load())
		}
		cluster.Store(testCluster)
		time.Sleep(time.Second)
		hosts[0].transport.Ping(2, ping(1), nil)
		synctest.Wait()
		if got.Load() != 1 {
			t.Fatalf("%d arrived", got.Load())
		}
	})
}

// A stream that is not from a peer of the same cluster to this very host never gets a message in.
func TestPeerIdentity(t *testing.T) {
	n := network{mem: memnet.New()}
	hosts := newHosts(t, n, 1)
	hosts[0].handle = func(from uint64, _ *peerpb.MessageBatch) {
		t.Errorf("a message from %d got in", from)
	}
	client := peerpb.NewPeerClient(mustConn(t, n.dialer(t, "x"), hosts[0].addr))
	good := map[string]string{realmKey: "node", clusterKey: fmt.Sprintf("%x", testCluster),
		fromKey: "2", toKey: "1"}
	for _, test := range []struct {
		key, value string
		code       codes.Code
	}{
		{realmKey, "core", codes.NotFound},
		{realmKey, "", codes.NotFound},
		{clusterKey, "c2", codes.FailedPrecondition},
		{clusterKey, "", codes.InvalidArgument},
		{clusterKey, "0", codes.InvalidArgument},
		{clusterKey, "garbage", codes.InvalidArgument},
		{fromKey, "", codes.InvalidArgument},
		{fromKey, "0", codes.InvalidArgument},
		{fromKey, "1", codes.FailedPrecondition},
		{toKey, "3", codes.FailedPrecondition},
		{toKey, "-1", codes.InvalidArgument},
	} {
		ctx := t.Context()
		for key, value := range good {
			if key == test.key {
				value = test.value
			}
			if value != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, key, value)
			}
		}
		snapshot, err := client.Snapshot(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.CloseAndRecv(); status.Code(err) != test.code {
			t.Errorf("snapshot, %s = %q: %v", test.key, test.value, err)
		}
	}
}

// Close ends streams in both directions, waits for the handler, and lets nothing through
// afterwards.
func TestPeerClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 2)
		var closed atomic.Bool
		entered := make(chan struct{}, 10)
		leave := make(chan struct{})
		hosts[1].handle = func(uint64, *peerpb.MessageBatch) {
			if closed.Load() {
				t.Error("handled after Close")
			}
			entered <- struct{}{}
			<-leave
		}
		var unreachable atomic.Int64
		hosts[0].unreachable = func(uint64) { unreachable.Add(1) }
		send := func() {
			hosts[0].transport.Send(2, ClassConsensus, []*peerpb.RaftMessage{message(1, 1)})
		}
		send()
		<-entered
		send()
		done := make(chan struct{})
		go func() {
			hosts[1].transport.Close()
			closed.Store(true)
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("closed while the handler ran")
		default:
		}
		close(leave)
		<-done
		synctest.Wait()
		if unreachable.Load() == 0 {
			t.Fatal("the sender was not told")
		}
		for range 50 {
			send()
			time.Sleep(100 * time.Millisecond)
		}
		hosts[0].transport.Close()
		send()
		hosts[0].transport.Ping(2, ping(1), nil)
		if err := hosts[0].transport.SendSnapshot(t.Context(), 2, &peerpb.SnapshotHeader{},
			nil); status.Code(err) != codes.Unavailable {
			t.Fatal(err)
		}
		hosts[0].transport.Close()
	})
}

// The number of streams that a transport receives is bounded.
func TestPeerBoundsStreams(t *testing.T) {
	n := network{mem: memnet.New()}
	hosts := newHosts(t, n, 1)
	hosts[0].transport.mu.incoming = maxIncoming // as if so many were open
	conn, err := n.dialer(t, "x").Open(t.Context(), hosts[0].addr,
		identity{"node", testCluster, 2, 1}.hello())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.AwaitAccepted(); status.Code(err) != codes.ResourceExhausted {
		t.Fatal(err)
	}
}

// Hosts that take nothing leave room for what others are sent, and heartbeats find room whatever
// waits.
func TestSlowPeersLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, size = 2 << 20, 50 << 10
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 6, func(c *Config) { c.MaxQueuesBytes = most })
		for _, h := range hosts[1:] {
			n.mem.Cut("h1", fmt.Sprintf("h%d", h.id), memnet.Stall)
		}
		sender := hosts[0].transport
		waits := func(host uint64, class Class) int {
			sender.mu.RLock()
			defer sender.mu.RUnlock()
			l := sender.mu.links[linkKey{host, class}]
			l.mu.Lock()
			defer l.mu.Unlock()
			l.mu.stream.out.Lock()
			defer l.mu.stream.out.Unlock()
			return l.mu.stream.out.PendingLocked()
		}
		fill := func(host uint64, class Class) {
			for i := range uint64(most / size) {
				sender.Send(host, class, []*peerpb.RaftMessage{message(i, size)})
			}
		}
		fill(2, ClassConsensus)
		for i := range uint64(5) {
			sender.Send(3, ClassConsensus, []*peerpb.RaftMessage{message(i, size)})
		}
		if n := waits(3, ClassConsensus); n < 5*size {
			t.Errorf("%d bytes wait for a host beside one that takes nothing", n)
		}
		for host := uint64(2); host <= 6; host++ {
			fill(host, ClassConsensus)
		}
		for range 5 {
			sender.Send(3, ClassControl, []*peerpb.RaftMessage{message(1, 100)})
		}
		if n := waits(3, ClassControl); n < 5*100 {
			t.Errorf("%d bytes of heartbeats wait beside hosts that take nothing", n)
		}
		for _, h := range hosts[1:] {
			n.mem.Heal("h1", fmt.Sprintf("h%d", h.id))
		}
	})
}

// The queues to all hosts together are bounded, whatever each may have, and what was sent, or went
// with a stream, counts no more.
func TestPeerQueuesTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2 << 20
		n := network{mem: memnet.New()}
		hosts := newHosts(t, n, 5, func(c *Config) { c.MaxQueuesBytes = most })
		var got atomic.Int64
		for _, h := range hosts[1:] {
			h.handle = func(_ uint64, b *peerpb.MessageBatch) { got.Add(int64(len(b.Messages))) }
			n.mem.Cut("h1", fmt.Sprintf("h%d", h.id), memnet.Stall)
		}
		sender := hosts[0].transport
		for i := range uint64(100) {
			for _, h := range hosts[1:] {
				sender.Send(h.id, ClassConsensus, []*peerpb.RaftMessage{message(i, 100<<10)})
			}
		}
		if queued := sender.queued.Load(); queued < most/2 || queued > most+4*101<<10 {
			t.Errorf("%d bytes wait", queued)
		}
		n.mem.Cut("h1", "h2", memnet.Break)
		for _, h := range hosts[1:] {
			n.mem.Heal("h1", fmt.Sprintf("h%d", h.id))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if queued := sender.queued.Load(); queued != 0 {
			t.Errorf("%d bytes are counted when nothing waits", queued)
		}
		if got.Load() == 0 {
			t.Error("nothing has arrived")
		}
	})
}
