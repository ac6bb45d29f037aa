package etcdapi

import (
	"context"
	"crypto/rand"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lone is a store of one member, and the Raft group as far as that can tell.
type lone struct {
	*store.Store
	state *engine.State

	mu    sync.Mutex
	term  uint64
	index uint64
	leads bool
}

func newLone(t testing.TB) *lone {
	t.Helper()
	m := &lone{}
	var err error
	m.state, err = engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state",
		CacheBytes: 8 << 20, MemTableBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if m.Store, err = store.New(store.Config{State: m.state, Group: m, Random: rand.Reader,
		Partition: keys.CoordinationPartition, History: 1 << 40}); err != nil {
		t.Fatal(err)
	}
	m.setLeads(t, true)
	t.Cleanup(func() {
		m.setLeads(t, false)
		m.Store.Close()
		if err := m.state.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *lone) setLeads(t testing.TB, leads bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term++
	m.leads = leads
	l := group.Leadership{Term: m.term, IsLeader: leads}
	if leads {
		l.Leader = 1
	}
	m.Store.LeadershipChanged(l)
	if leads {
		if err := m.appendLocked(nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (m *lone) appendLocked(data []byte) error {
	m.index++
	return m.Store.Apply([]group.Entry{{Index: m.index, Term: m.term, Data: data}})
}

func (m *lone) Propose(term uint64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leads || term != m.term {
		return nil
	}
	return m.appendLocked(data)
}

func (m *lone) ProposeChange(uint64, []byte, group.Configuration) error { return nil }

func (m *lone) ReadIndex(done func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.leads {
		done(store.ErrNotLeader)
		return
	}
	done(nil)
}

func (m *lone) Committed() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.index
}

func (m *lone) Lease() (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.term, m.leads
}

// alone is a cluster of one member that cannot be changed.
type alone struct {
	address string
	learner atomic.Bool
	// clocks are the clocks that were heard of five members.
	clocks []int64
}

// callers are those of a server to which calls are passed on.
type callers struct {
	authorize.Connections
	passedOn func(context.Context) (commonName string, ok bool)
	party    func(context.Context) string
}

func (c callers) PassedOn(ctx context.Context) (commonName string, ok bool) {
	if c.passedOn == nil {
		return c.Connections.PassedOn(ctx)
	}
	return c.passedOn(ctx)
}

func (c callers) Party(ctx context.Context) string { return c.party(ctx) }

func (a *alone) ClusterID() uint64              { return 0xc1 }
func (a *alone) MemberID() uint64               { return 0xe1 }
func (a *alone) MemberOf(keys.ReplicaID) uint64 { return 0xe1 }
func (a *alone) Learner() bool                  { return a.learner.Load() }

func (a *alone) Members(context.Context, bool) ([]backend.Member, error) {
	return []backend.Member{{ID: 0xe1, Name: "m1", PeerURLs: []string{"http://127.0.0.1:2380"},
		ClientURLs: []string{"http://" + a.address}}}, nil
}

func (a *alone) Add(context.Context, []string, bool) (backend.Member, []backend.Member, error) {
	return backend.Member{}, nil, errUnsupportedHere
}

func (a *alone) Remove(context.Context, uint64) ([]backend.Member, error) {
	return nil, errUnsupportedHere
}

func (a *alone) Update(context.Context, uint64, []string) ([]backend.Member, error) {
	return nil, errUnsupportedHere
}

func (a *alone) Promote(context.Context, uint64) ([]backend.Member, error) {
	return nil, errUnsupportedHere
}

func (a *alone) GiveBack(context.Context) error { return nil }

func (a *alone) Clocks() (clocks []int64, members int) { return slices.Clone(a.clocks), 5 }

func (a *alone) MoveLeader(context.Context, uint64) error { return errUnsupportedHere }

// served is the API on a port, and a client of it.
type served struct {
	*clientv3.Client
	lone     *lone
	cluster  *alone
	services *Services
	address  string
}

func serve(t testing.TB, change func(*Config)) *served {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{lone: newLone(t), address: listener.Addr().String()}
	s.cluster = &alone{address: s.address}
	config := Config{Store: s.lone, Cluster: s.cluster, Random: rand.Reader}
	if change != nil {
		change(&config)
	}
	services, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s.services = services
	watch, err := watches.New(watches.Config{Store: s.lone, Cluster: s.cluster, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	services.Watch = watch
	server := grpc.NewServer(grpc.MaxRecvMsgSize(DefaultMaxRequestBytes + RequestOverheadBytes))
	services.Register(server)
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) })
	s.Client = dial(t, s.address)
	t.Cleanup(func() {
		server.Stop()
		running.Wait()
		watch.Wait()
		services.Close()
	})
	return s
}

func dial(t testing.TB, address string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop(),
		DialTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}
