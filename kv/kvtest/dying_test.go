package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// cleanedUp is how long, in the test's time, no client has to wait longer for what a client or a
// server leaves behind that dies.
const cleanedUp = 5 * time.Second

// steps counts what a client sends, and has something happen before one of its writes to a
// connection, or when that has arrived and the answer has not. It is the client's dialer.
type steps struct {
	dial func(ctx context.Context, address string) (net.Conn, error)
	// left is how many writes go out before it happens; below zero: it has happened, or never will.
	left    atomic.Int64
	arrives bool
	happen  func()
}

func (s *steps) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return &steppingConn{Conn: conn, steps: s}, nil
}

// happened reports whether as many writes were made.
func (s *steps) happened() bool { return s.left.Load() < 0 }

type steppingConn struct {
	net.Conn
	steps *steps
}

func (c *steppingConn) Write(b []byte) (int, error) {
	s := c.steps
	if s.left.Load() < 0 || s.left.Add(-1) != -1 {
		return c.Conn.Write(b)
	}
	if !s.arrives {
		s.happen()
		return c.Conn.Write(b)
	}
	n, err := c.Conn.Write(b)
	time.Sleep(latency + latency/2)
	s.happen()
	return n, err
}

// never is more writes than any client makes.
const never = 1 << 40

// mortal is a cluster whose clients, or servers, die in the middle of transactions.
type mortal struct {
	*kvtest.Cluster
	registries [3]*prometheus.Registry
	hash       *kv.Keyspace // of the witness
	// witness is a client that lives.
	witness *kv.Client
	clients int
}

func newMortal(t *testing.T) *mortal {
	m := &mortal{}
	m.Cluster = kvtest.Start(t, kvtest.Options{Cores: 3, Latency: latency,
		Configure: func(server int, c *embedded.ServerConfig) {
			m.registries[server] = prometheus.NewRegistry()
			c.Registry = m.registries[server]
		}})
	m.witness = m.Client(t)
	m.hash = create(t, m.witness, "hash", kv.Hash(4))
	create(t, m.witness, "range", kv.Range([]byte("m")))
	return m
}

// locks is how many keys are locked, on all servers that run.
func (m *mortal) locks(t *testing.T) (n float64) {
	t.Helper()
	for i, r := range m.registries {
		if m.Process(i) == nil {
			continue
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "tidemark_txn_locks" {
				n += f.GetMetric()[0].GetGauge().GetValue()
			}
		}
	}
	return n
}

// where names the keys that each transaction, of client c, writes: in all partitions of both
// keyspaces.
func (m *mortal) where(c *kv.Client, visit func(ks *kv.Keyspace, key []byte) error) error {
	var errs []error
	hash, ranged := c.Keyspace("hash"), c.Keyspace("range")
	for i := range 6 {
		errs = append(errs, visit(hash, fmt.Appendf(nil, "h%d", i)))
	}
	return errors.Join(append(errs, visit(ranged, []byte("a")), visit(ranged, []byte("z")))...)
}

// write writes one value to all the keys. A slow one locks one of them and lets time go by, so that
// its client sends signs of life; a client that wants the keys waits for that too, and once more if
// it has to run again.
func (m *mortal) write(ctx context.Context, c *kv.Client, value string, slow bool) error {
	_, err := c.Update(ctx, func(tx *kv.Txn) error {
		// One that is written too, and is compared as it is prepared, and one that is not, and is
		// refreshed.
		for _, key := range []string{"a", "only read"} {
			if _, err := tx.Get(ctx, c.Keyspace("range"), []byte(key)); err != nil &&
				!errors.Is(err, kv.ErrNotFound) {
				return err
			}
		}
		if slow {
			if _, err := tx.GetForUpdate(ctx, c.Keyspace("hash"), []byte("h3")); err != nil &&
				!errors.Is(err, kv.ErrNotFound) {
				return err
			}
			time.Sleep(1500 * time.Millisecond) // longer than between two heartbeats
		}
		return m.where(c, func(ks *kv.Keyspace,
			key []byte) error {
			return tx.Put(ks, key, []byte(value))
		})
	})
	return err
}

// read gives the value that all the keys have.
func (m *mortal) read(t *testing.T, ctx context.Context) (value string, err error) {
	t.Helper()
	err = m.witness.View(ctx, func(s *kv.Snapshot) error {
		value = ""
		return m.where(m.witness, func(ks *kv.Keyspace, key []byte) error {
			p, err := s.Get(ctx, ks, key)
			if err != nil {
				return err
			}
			if value != "" && value != string(p.Value) {
				t.Errorf("%s has %q, others have %q", key, p.Value, value)
			}
			value = string(p.Value)
			return nil
		})
	})
	return value, err
}

// at is a moment in the life of a transaction: before its client's packet, or when that packet has
// arrived and the answer to it has not.
type at struct {
	packet        int
	arrives, slow bool
}

func (a at) String() string {
	when, which := "before", ""
	if a.arrives {
		when = "just after"
	}
	if a.slow {
		which = " of a transaction that takes its time"
	}
	return fmt.Sprintf("%s packet %d%s", when, a.packet, which)
}

// moments gives one moment after the other to a function, until that has said for each kind of
// transaction that its end was reached.
func moments(t *testing.T, try func(n int, a at) (happened bool)) {
	n := 0
	for _, slow := range []bool{false, true} {
		for _, arrives := range []bool{false, true} {
			packet := 0
			// Two runs of a transaction do not send exactly as many packets.
			for late := 0; late < 3; packet++ {
				if packet == 1000 {
					t.Fatal("a transaction sends more than a thousand packets")
				}
				late++
				if try(n, at{packet, arrives, slow}) {
					late = 0
				}
				n++
			}
			if packet < 10 {
				t.Fatalf("nothing happened after packet %d", packet-4)
			}
		}
	}
	t.Logf("%d moments", n)
}

// attempt runs a transaction, and has something happen at a moment of its life. It returns when the
// transaction has ended and the thing has happened or cannot happen any more; the error is that of
// the commit.
func (m *mortal) attempt(t *testing.T, a at, value string, happen func(host string,
	kill context.CancelFunc)) (happened bool, err error) {
	t.Helper()
	m.clients++
	host := fmt.Sprintf("mortal-%d", m.clients)
	life, kill := context.WithCancel(t.Context())
	defer kill()
	s := &steps{dial: m.Dialer(host), arrives: a.arrives}
	s.left.Store(never)
	s.happen = func() { happen(host, kill) }
	client, err := kv.Open(life, m.Endpoints(), kv.Dialer(s.Dial))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// It knows the way to all partitions.
	if _, err := client.Keyspace("hash").Count(life); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Keyspace("range").Count(life); err != nil {
		t.Fatal(err)
	}
	s.left.Store(int64(a.packet))
	err = m.write(life, client, value, a.slow)
	if err == nil && !s.happened() {
		time.Sleep(time.Second) // it resolves in the background
	}
	happened = s.happened()
	s.left.Store(never)
	return happened, err
}

// TestClientDiesAtEachStep kills the client of a transaction around each of the packets that it
// sends. The transaction is there as a whole or not at all, it is there if it was acknowledged, and
// within 5 s others have read and written its keys; or, if none wants to, nothing of it is left.
func TestClientDiesAtEachStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMortal(t)
		if err := m.write(t.Context(), m.witness, "first", false); err != nil {
			t.Fatal(err)
		}
		before, unknown, longest := "first", 0, time.Duration(0)
		try := func(n int, a at) bool {
			var died time.Time
			value := fmt.Sprintf("dying-%d", n)
			happened, err := m.attempt(t, a, value, func(host string, kill context.CancelFunc) {
				died = time.Now()
				m.Network().Isolate(host, []memnet.Mode{memnet.Break, memnet.Stall}[n/2%2])
				kill()
			})
			if !happened {
				died = time.Now()
			}
			after := func(what string) {
				d := time.Since(died)
				if longest = max(longest, d); d > cleanedUp {
					t.Errorf("a client died %v: %s %v later", a, what, d)
				}
			}
			if n%2 == 0 {
				for m.locks(t) > 0 && time.Since(died) < 2*cleanedUp {
					time.Sleep(100 * time.Millisecond)
				}
				after("its locks were gone")
			}
			found, readErr := m.read(t, t.Context())
			if readErr != nil {
				t.Fatalf("after a client had died %v: %v", a, readErr)
			}
			after("what it had written could be read")
			switch {
			case found == value:
			case found != before:
				t.Errorf("after a client had died %v: found %q, which is neither %q nor %q", a,
					found, before, value)
			case err == nil:
				t.Errorf("after a client had died %v: found %q, although %q had been acknowledged",
					a, found, value)
			}
			if err != nil && found == value {
				unknown++
			}
			before = fmt.Sprintf("others-%d", n)
			if err := m.write(t.Context(), m.witness, before, false); err != nil {
				t.Fatalf("after a client had died %v: %v", a, err)
			}
			after("others had written the same keys")
			return happened
		}
		moments(t, try)
		// Two runs of a transaction do not send the same packets, so a moment can be missed; this
		// one must not.
		for round := 0; unknown == 0 && round < 5; round++ {
			moments(t, try)
		}
		t.Logf("the longest wait was %v", longest)
		if unknown == 0 {
			t.Error("no client died when its transaction was decided and not acknowledged")
		}
	})
}

// TestServerDiesAtEachStep kills a server around each of the packets that the client of a
// transaction sends. The transaction is there as a whole or not at all, it is there if it was
// acknowledged, and within 5 s others have written its keys.
func TestServerDiesAtEachStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := newMortal(t)
		if err := m.write(t.Context(), m.witness, "first", false); err != nil {
			t.Fatal(err)
		}
		before, longest := "first", time.Duration(0)
		moments(t, func(n int, a at) bool {
			victim := n % 3
			dead, ended := make(chan struct{}), make(chan struct{})
			var died time.Time
			var happened bool
			var err error
			value := fmt.Sprintf("dying-%d", n)
			go func() {
				defer close(ended)
				happened, err = m.attempt(t, a, value, func(string, context.CancelFunc) {
					died = time.Now()
					go func() { defer close(dead); m.Kill(victim, n/3%3*50) }()
				})
			}()
			select {
			case <-dead:
			case <-ended:
			}
			// Others want to write the same meanwhile.
			others := ""
			if !died.IsZero() {
				others = fmt.Sprintf("others-%d", n)
				if err := m.write(t.Context(), m.witness, others, false); err != nil {
					t.Fatalf("after server %d had died %v: %v", victim, a, err)
				}
				d := time.Since(died)
				if longest = max(longest, d); d > cleanedUp {
					t.Errorf("server %d died %v: others had written the same keys %v later", victim,
						a, d)
				}
			}
			<-ended
			if happened {
				<-dead
				start(t, m.Cluster, victim)
				ready(t, m.Cluster)
			}
			found, readErr := m.read(t, t.Context())
			if readErr != nil {
				t.Fatalf("after server %d had died %v: %v", victim, a, readErr)
			}
			switch {
			case found == others && others != "":
			case found != value:
				t.Errorf("server %d died %v: found %q, which is neither %q nor %q; before it "+
					"was %q", victim, a, found, value, others, before)
			case err != nil && !errors.Is(err, kv.ErrOutcomeUnknown):
				t.Errorf("server %d died %v: %q is there, although its client was told: %v", victim,
					a, value, err)
			}
			before = found
			return happened
		})
		t.Logf("the longest wait was %v", longest)
		eventually(t, "the locks to go", func() bool { return m.locks(t) == 0 })
		equal(t, m.Cluster)
	})
}
