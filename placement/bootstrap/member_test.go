package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errCrash  = errors.New("crashed")
	errSilent = errors.New("no answer")
)

// world is servers in one process. At one numbered point, a write to disk or a message, it can
// crash the server that does it.
type world struct {
	t  *testing.T
	mu sync.Mutex
	// procs by address; nil while a server is down.
	procs map[string]*proc
	disks map[string]*vfs.MemFS
	core  []string

	points  int
	crashAt int  // 0: never
	after   bool // crash after the step and not before it
}

type proc struct {
	world   *world
	address string
	fs      *vfs.MemFS
	member  *Member
	dead    bool
	ctx     context.Context // ends when it dies
	kill    context.CancelFunc
}

// point counts, and says whether the server dies here.
func (p *proc) point() (before, after bool) {
	w := p.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead {
		return true, true
	}
	w.points++
	if w.points != w.crashAt {
		return false, false
	}
	p.dead = true
	p.kill()
	return !w.after, w.after
}

func (p *proc) Load() (*bootstrappb.State, error) { return FileDisk{p.fs, "d"}.Load() }

func (p *proc) Store(s *bootstrappb.State) error {
	before, after := p.point()
	if before {
		return errCrash
	}
	if err := (FileDisk{p.fs, "d"}).Store(s); err != nil {
		return err
	}
	if after {
		return errCrash
	}
	return nil
}

func (p *proc) call(
	address string, f func(*Member) (*clusterpb.BootstrapHello, error),
) (*clusterpb.BootstrapHello, error) {
	before, after := p.point()
	if before {
		return nil, errCrash
	}
	p.world.mu.Lock()
	peer := p.world.procs[address]
	down := peer == nil || peer.dead
	p.world.mu.Unlock()
	if down {
		return nil, errSilent
	}
	h, err := f(peer.member)
	p.world.mu.Lock()
	died := peer.dead
	p.world.mu.Unlock()
	switch {
	case after:
		return nil, errCrash
	case died:
		return nil, errSilent
	}
	return h, err
}

func (p *proc) Hello(
	ctx context.Context, address string, h *clusterpb.BootstrapHello,
) (*clusterpb.BootstrapHello, error) {
	return p.call(address, func(m *Member) (*clusterpb.BootstrapHello, error) {
		return m.Hello(ctx, h)
	})
}

func (p *proc) Accept(
	ctx context.Context, address string, f *clusterpb.Founding,
) (*clusterpb.BootstrapHello, error) {
	return p.call(address, func(m *Member) (*clusterpb.BootstrapHello, error) {
		return m.Accept(ctx, f)
	})
}

func newWorld(t *testing.T, core ...string) *world {
	w := &world{t: t, procs: map[string]*proc{}, disks: map[string]*vfs.MemFS{}, core: core}
	for _, address := range core {
		w.wipe(address)
	}
	return w
}

// wipe gives a server an empty disk.
func (w *world) wipe(address string) {
	fs := vfs.NewCrashableMem()
	if err := fs.MkdirAll("d", 0o755); err != nil {
		w.t.Fatal(err)
	}
	root, err := fs.OpenDir("/")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := errors.Join(root.Sync(), root.Close()); err != nil {
		w.t.Fatal(err)
	}
	w.setDisk(address, fs)
}

func (w *world) disk(address string) *vfs.MemFS {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.disks[address]
}

func (w *world) setDisk(address string, fs *vfs.MemFS) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disks[address] = fs
}

// start opens a server on its disk, once more if it crashes while it opens.
func (w *world) start(address string) (*proc, error) {
	for {
		p := &proc{world: w, address: address, fs: w.disk(address)}
		p.ctx, p.kill = context.WithTimeout(w.t.Context(), time.Minute)
		member, err := Open(Config{Disk: p, Self: address, Core: w.core, Peers: p})
		if errors.Is(err, errCrash) {
			w.power(p)
			continue
		}
		if err != nil {
			return nil, err
		}
		p.member = member
		w.mu.Lock()
		w.procs[address] = p
		w.mu.Unlock()
		return p, nil
	}
}

// power is what a power failure leaves of the disk of a server that died.
func (w *world) power(p *proc) {
	w.mu.Lock()
	points := w.points
	w.mu.Unlock()
	w.setDisk(p.address, p.fs.CrashClone(
		vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(points)))}))
}

// form runs all servers until the core is formed, starting those again that crash.
func (w *world) form(addresses ...string) map[string]*clusterpb.Founding {
	w.t.Helper()
	formed := map[string]*clusterpb.Founding{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, address := range addresses {
		all.Go(func() {
			for {
				p, err := w.start(address)
				if err != nil {
					w.t.Errorf("start %s: %v", address, err)
					return
				}
				f, err := p.member.Run(p.ctx)
				w.mu.Lock()
				dead := p.dead
				w.mu.Unlock()
				if dead {
					w.power(p)
					continue
				}
				if err != nil {
					w.t.Errorf("%s: %v", address, err)
					return
				}
				mu.Lock()
				formed[address] = &clusterpb.Founding{Cluster: f.Cluster, Members: f.Founding}
				mu.Unlock()
				return
			}
		})
	}
	all.Wait()
	return formed
}

func (w *world) check(formed map[string]*clusterpb.Founding) *clusterpb.Founding {
	w.t.Helper()
	first := formed[w.core[0]]
	for _, address := range w.core {
		if !equal(first, formed[address]) || first == nil {
			w.t.Fatalf("%s belongs to %v, %s to %v", w.core[0], first, address, formed[address])
		}
	}
	return first
}

// A crash at any point, before or after any write or message, of any member: the core is
// formed, once.
func TestEveryCrashPoint(t *testing.T) {
	for _, core := range [][]string{{"a"}, {"a", "b", "c"}} {
		for _, after := range []bool{false, true} {
			for at := 0; ; at++ {
				var points int
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, core...)
					w.crashAt, w.after = at, after
					w.check(w.form(core...))
					points = w.points
				})
				if t.Failed() {
					t.Fatalf("with %v, crash at point %d, after: %v", core, at, after)
				}
				if at > points {
					break
				}
			}
		}
	}
}

func TestWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		done := make(chan map[string]*clusterpb.Founding)
		go func() { done <- w.form("a", "b") }()
		time.Sleep(10 * time.Second)
		w.mu.Lock()
		text := w.procs["a"].member.WaitingFor()
		w.mu.Unlock()
		if !strings.Contains(text, "waits for c") || !strings.Contains(text, errSilent.Error()) {
			t.Errorf("it says %q", text)
		}
		formed := w.form("c")
		for address, f := range <-done {
			formed[address] = f
		}
		w.check(formed)
	})
}

// A member starts from its disk, with no other there.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		f := w.check(w.form("a", "b", "c"))
		w.procs = map[string]*proc{}
		started := time.Now()
		again := w.form("b")
		if !equal(again["b"], f) || !time.Now().Equal(started) {
			t.Errorf("started alone as %v after %s", again["b"], time.Since(started))
		}
		// The list names seeds, once the core is there.
		w.core = []string{"x", "y"}
		p, err := w.start("b")
		if err != nil {
			t.Fatal(err)
		}
		if m, err := p.member.Run(t.Context()); err != nil || m.Replica != 2 || m.Cluster != f.Cluster {
			t.Errorf("with another list: %v, %v", m, err)
		}
	})
}

// A server joins a core that is there, and leaves it for good; it says of itself what it is.
func TestJoinAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		f := w.check(w.form("a"))
		w.wipe("d")
		open := func() (*proc, *clusterpb.BootstrapHello) {
			p, err := w.start("d")
			if err != nil {
				t.Fatal(err)
			}
			h, err := p.member.Hello(t.Context(), &clusterpb.BootstrapHello{})
			if err != nil {
				t.Fatal(err)
			}
			return p, h
		}
		p, h := open()
		if _, err := p.member.Run(t.Context()); !errors.Is(err, ErrNotMember) || !h.Offers ||
			h.Founded {
			t.Fatalf("%v: %v", err, h)
		}
		if _, err := p.member.Accept(t.Context(), f); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("it forms a core: %v", err)
		}
		if _, err := p.member.Join(f.Cluster, 2, f.Members); err != nil {
			t.Fatal(err)
		}
		if _, err := p.member.Join(f.Cluster, 3, f.Members); !errors.Is(err, ErrRefused) {
			t.Fatalf("it joined twice: %v", err)
		}
		p, h = open()
		m, err := p.member.Run(t.Context())
		if err != nil || m.Replica != 2 || m.Founding != nil || len(m.Known) != 1 {
			t.Fatalf("%v, %v", m, err)
		}
		if h.Offers || !h.Founded || h.Accepted.Cluster != f.Cluster {
			t.Fatalf("%v", h)
		}
		if err := p.member.Leave(); err != nil {
			t.Fatal(err)
		}
		p, h = open()
		if _, err := p.member.Run(t.Context()); !errors.Is(err, ErrRemoved) || h.Offers || !h.Removed {
			t.Fatalf("%v: %v", err, h)
		}
		if _, err := p.member.Join(f.Cluster, 4, f.Members); !errors.Is(err, ErrRefused) {
			t.Fatalf("it came back: %v", err)
		}
	})
}

// A server that finds a core while it looks for one to form offers itself: that another server
// takes the place of a member whose disk is lost needs no other list.
func TestNewDirectoryOffersItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		f := w.check(w.form("a", "b", "c"))
		w.wipe("b")
		p, err := w.start("b")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.member.Run(t.Context())
		if !errors.Is(err, ErrNotMember) || !strings.Contains(err.Error(), "core replace b b") {
			t.Fatal(err)
		}
		if _, err := p.member.Join(f.Cluster, 4, f.Members); err != nil {
			t.Fatal(err)
		}
	})
}

// A member whose disk was wiped does not take its former place.
func TestWipedMemberStaysOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		f := w.check(w.form("a", "b", "c"))
		w.wipe("b")
		p, err := w.start("b")
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.member.Run(t.Context())
		if !errors.Is(err, ErrNotMember) ||
			!strings.Contains(err.Error(), fmt.Sprintf("%016x", f.Cluster)) {
			t.Errorf("the wiped member: %v", err)
		}
		// Nor does a new server that lists a member of this core.
		w.core = []string{"a", "x", "y"}
		w.wipe("x")
		if p, err = w.start("x"); err != nil {
			t.Fatal(err)
		}
		if _, err = p.member.Run(t.Context()); !errors.Is(err, ErrNotMember) {
			t.Errorf("a stranger: %v", err)
		}
	})
}

// A disk that is replaced while the core forms: nothing is formed with half of it, and the servers
// say what to do.
func TestWipedWhileForming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		// a and b have accepted; c has not, and comes back with another name.
		founding := &clusterpb.Founding{Cluster: 7}
		for i, address := range w.core {
			founding.Members = append(founding.Members, &clusterpb.CoreMember{Address: address,
				Replica: uint64(i + 1), Server: uint64(i + 1)})
		}
		for i, address := range w.core[:2] {
			state := &bootstrappb.State{Server: uint64(i + 1), Address: address,
				Accepted: toDisk(founding)}
			if i == 0 {
				state.Proposed = state.Accepted
			}
			if err := (FileDisk{w.disk(address), "d"}).Store(state); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var all sync.WaitGroup
		for _, address := range w.core {
			p, err := w.start(address)
			if err != nil {
				t.Fatal(err)
			}
			all.Go(func() {
				if f, err := p.member.Run(ctx); err == nil ||
					!strings.Contains(err.Error(), "empty the data directories") {
					t.Errorf("%s: %v, %v", p.address, f, err)
				}
			})
		}
		all.Wait()
	})
}

func TestDamagedFile(t *testing.T) {
	good, err := encodeState(&bootstrappb.State{Server: 5, Address: "a"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x40
		if s, err := decodeState(bad); err == nil {
			t.Errorf("byte %d flipped: %v", i, s)
		}
		if s, err := decodeState(good[:i]); err == nil {
			t.Errorf("cut to %d bytes: %v", i, s)
		}
	}
}

func FuzzState(f *testing.F) {
	good, err := encodeState(&bootstrappb.State{Server: 5, Address: "a", Founded: true,
		Accepted: &bootstrappb.Founding{
			Cluster: 1, Members: []*bootstrappb.Member{{Address: "a", Replica: 1, Server: 5}},
		}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(fileMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeState(data)
		if err != nil {
			return
		}
		again, err := encodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState(again); err != nil {
			t.Fatalf("decoded, encoded and not decoded again: %v", err)
		}
	})
}

func FuzzFounding(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		founding := &clusterpb.Founding{}
		if proto.Unmarshal(data, founding) != nil {
			return
		}
		m, err := newMachine("a", []string{"a"}, &bootstrappb.State{Server: 1})
		if err != nil {
			t.Fatal(err)
		}
		if next, err := m.accept(founding); err == nil && !next.Founded && next.Accepted == nil {
			t.Fatal("accepted nothing")
		}
	})
}
