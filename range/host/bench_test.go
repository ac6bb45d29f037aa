package host

import (
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/raftlog"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/peer"
)

// BenchmarkReplicate measures what a replicated entry costs the three hosts together, over gRPC on
// loopback and with synced logs. Each group has a bounded number of proposals in flight, as the
// replicas above have.
func BenchmarkReplicate(b *testing.B) {
	for _, c := range []struct{ groups, inflight, bytes int }{{1, 1, 300}, {1, 2, 10_000},
		{8, 2, 5_000}, {64, 2, 1_000}} {
		b.Run(fmt.Sprintf("groups=%d/inflight=%d/bytes=%d", c.groups, c.inflight, c.bytes),
			func(b *testing.B) {
				benchmarkReplicate(b, c.groups, c.inflight, c.bytes)
			})
	}
}

// slots is a state machine that gives the proposer a slot back for each entry applied.
type slots struct {
	machine
	free chan struct{}
}

func (s *slots) Apply(entries []group.Entry) error {
	for _, e := range entries {
		s.index, s.term = e.Index, e.Term
		if len(e.Data) > 0 {
			select {
			case s.free <- struct{}{}:
			default: // a follower: no request waits
			}
		}
	}
	return nil
}

func benchmarkReplicate(b *testing.B, groups, inflight, size int) {
	addrs := map[uint64]string{}
	listeners := map[uint64]net.Listener{}
	for id := uint64(1); id <= 3; id++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		listeners[id], addrs[id] = l, l.Addr().String()
	}
	hosts := map[uint64]*Host{}
	machines := map[keys.PartitionID]*slots{}
	for id := uint64(1); id <= 3; id++ {
		db, err := engine.OpenLog(engine.Options{FS: vfs.Default, Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		h, err := New(Config{Self: id, Log: db,
			Clock: hlc.NewClock(hlc.System(), hlc.FixedBound(250*time.Millisecond))})
		if err != nil {
			b.Fatal(err)
		}
		hosts[id] = h
		dialer := client.NewDialer(client.DialerConfig{})
		t := peer.NewTransport(peer.Config{Realm: "bench", Self: id,
			Cluster: func() uint64 { return 1 },
			Resolve: func(h uint64) (string, bool) {
				return addrs[h],
					true
			}, Dialer: dialer, Handler: h})
		server := rpc.NewServer(rpc.ServerConfig{})
		server.ServePeers(t)
		go server.Serve(listeners[id]) //nolint:errcheck // ends with Stop
		h.Start(t)
		b.Cleanup(func() {
			t.Close()
			server.Stop()
			h.Close()
			dialer.Close()
			db.Close()
		})
		for i := range groups {
			identity := raftlog.Identity{Group: keys.PartitionID(100 + i),
				Replica: keys.ReplicaID(id), Voters: []keys.ReplicaID{1, 2, 3}}
			if err := h.Log().Create(identity); err != nil {
				b.Fatal(err)
			}
			m := &slots{free: make(chan struct{}, inflight)}
			if id == uint64(i%3)+1 {
				machines[identity.Group] = m
			}
			if _,
				err := h.Open(GroupConfig{Identity: identity, New: true,
				Hosts: map[keys.ReplicaID]uint64{1: 1, 2: 2, 3: 3},
				Open:  func(*Group) (group.StateMachine, error) { return m, nil }}); err != nil {
				b.Fatal(err)
			}
		}
	}
	leaders := make([]*Group, groups)
	terms := make([]uint64, groups)
	for i := range leaders {
		g := hosts[uint64(i%3)+1].Group(keys.PartitionID(100 + i))
		for terms[i] == 0 {
			if l := g.leadership.Load(); l.IsLeader {
				leaders[i], terms[i] = g, l.Term
				break
			}
			g.Campaign()
			time.Sleep(10 * time.Millisecond)
		}
	}
	data := make([]byte, size)
	b.ResetTimer()
	var before, after syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	var wg sync.WaitGroup
	for i, g := range leaders {
		wg.Add(1)
		go func() {
			defer wg.Done()
			m := machines[g.ID()]
			share := (b.N + groups - 1) / groups
			for n := 0; n < share; n++ {
				if n >= inflight {
					<-m.free
				}
				if err := g.Propose(terms[i], append([]byte(nil), data...)); err != nil {
					b.Error(err)
					return
				}
			}
			for range min(inflight, share) {
				<-m.free
			}
		}()
	}
	wg.Wait()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	cpu := time.Duration(
		after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano(),
	)
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
}
