package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect gives both ends of a connection from a to b.
func connect(t *testing.T, n *memnet.Network, a, b string) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := n.Listen(b)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err = n.Dialer(a)(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	accepted, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

// A connection does what the standard library's tests expect of every net.Conn.
func TestConformance(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		n := memnet.New()
		l, err := n.Listen("b:1")
		if err != nil {
			return nil, nil, nil, err
		}
		c1, err = n.Dialer("a")(context.Background(), "b:1")
		if err != nil {
			return nil, nil, nil, err
		}
		c2, err = l.Accept()
		return c1, c2, func() { c1.Close(); c2.Close(); l.Close() }, err
	})
}

func TestListen(t *testing.T) {
	n := memnet.New()
	l, err := n.Listen("b:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Listen("b:1"); err == nil {
		t.Fatal("two listeners at one address")
	}
	free, err := n.Listen("b:0")
	if err != nil || free.Addr().String() == "b:0" {
		t.Fatalf("%v, %v", free.Addr(), err)
	}
	free.Close()
	pending, err := n.Dialer("a")(t.Context(), "b:1")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := pending.Read(make([]byte, 1)); !errors.Is(err, memnet.ErrReset) {
		t.Fatal(err)
	}
	if _, err := n.Dialer("a")(t.Context(), "b:1"); !errors.Is(err, memnet.ErrRefused) {
		t.Fatal(err)
	}
	pending.Close()
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		n.SetDefaultLatency(10 * time.Millisecond)
		n.SetLatency("b", "a", 30*time.Millisecond)
		start := time.Now()
		dialled, accepted := connect(t, n, "a", "b:1")
		if d := time.Since(start); d != 40*time.Millisecond {
			t.Fatalf("dialling took %v", d)
		}
		start = time.Now()
		write(t, dialled, "there")
		read(t, accepted, "there")
		if d := time.Since(start); d != 10*time.Millisecond {
			t.Fatalf("there: %v", d)
		}
		write(t, accepted, "back")
		// The shorter latency does not let later bytes overtake.
		n.SetLatency("b", "a", 0)
		write(t, accepted, "again")
		read(t, dialled, "backagain")
		if d := time.Since(start); d != 40*time.Millisecond {
			t.Fatalf("there and back: %v", d)
		}
	})
}

// A stalled direction holds bytes and the end of the connection, and delivers both when healed; the
// other direction goes on.
func TestStallOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		dialled, accepted := connect(t, n, "a", "b:1")
		n.Cut("a", "b", memnet.Stall)
		write(t, dialled, "held")
		write(t, accepted, "free")
		read(t, dialled, "free")
		accepted.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := accepted.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		accepted.SetReadDeadline(time.Time{})
		dialled.Close()
		n.Heal("a", "b")
		read(t, accepted, "held")
		if _, err := accepted.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
	})
}

// A writer to a stalled link waits when the buffer is full, and goes on after healing.
func TestStallIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		dialled, accepted := connect(t, n, "a", "b:1")
		n.CutBoth("a:7", "b:1", memnet.Stall) // ports do not matter
		data := make([]byte, 1<<20)
		wrote := make(chan error, 1)
		go func() {
			_, err := dialled.Write(data)
			wrote <- err
		}()
		synctest.Wait()
		select {
		case err := <-wrote:
			t.Fatalf("a megabyte went into a cut link: %v", err)
		default:
		}
		n.HealAll()
		if _, err := io.ReadFull(accepted, data); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	})
}

func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		dialled, accepted := connect(t, n, "a", "b:1")
		l, _ := n.Listen("b:2")
		defer l.Close()
		n.Cut("b", "a", memnet.Break)
		for _, c := range []net.Conn{dialled, accepted} {
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, memnet.ErrReset) {
				t.Fatal(err)
			}
			if _, err := c.Write(make([]byte, 1)); !errors.Is(err, memnet.ErrReset) {
				t.Fatal(err)
			}
		}
		if _, err := n.Dialer("a")(t.Context(), "b:2"); !errors.Is(err, memnet.ErrRefused) {
			t.Fatal(err)
		}
		n.Heal("a", "b")
		c, err := n.Dialer("a")(t.Context(), "b:2")
		if err != nil {
			t.Fatal(err)
		}
		n.Drop("a", "b")
		if _, err := c.Write(make([]byte, 1)); !errors.Is(err, memnet.ErrReset) {
			t.Fatal(err)
		}
		c, _ = n.Dialer("a")(t.Context(), "b:2")
		n.DropHost("b")
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, memnet.ErrReset) {
			t.Fatal(err)
		}
		if _, err := n.Dialer("a")(t.Context(), "b:2"); !errors.Is(err, memnet.ErrRefused) {
			t.Fatal(err)
		}
	})
}

// Dialling over a stalled link waits, until it is healed or the context ends.
func TestIsolateAndDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		l, _ := n.Listen("b:1")
		defer l.Close()
		n.Isolate("b:1", memnet.Stall)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Dialer("a")(ctx, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		self, err := n.Dialer("b")(t.Context(), "b:1")
		if err != nil {
			t.Fatalf("a host that is cut off cannot reach itself: %v", err)
		}
		self.Close()
		time.AfterFunc(time.Minute, func() { n.Rejoin("b") })
		start := time.Now()
		c, err := n.Dialer("a")(t.Context(), "b:1")
		if err != nil || time.Since(start) != time.Minute {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		c.Close()
	})
}

// A writer does not learn that the other end has closed before its own reader can: both take the
// way back.
func TestCloseOverSlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New()
		dialled, accepted := connect(t, n, "a", "b:1")
		n.SetLatency("b", "a", time.Second)
		write(t, dialled, "read")
		read(t, accepted, "read")
		accepted.Close()
		write(t, dialled, "lost")
		start := time.Now()
		if _, err := dialled.Read(make([]byte, 1)); err != io.EOF || time.Since(start) != time.Second {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		if _, err := dialled.Write([]byte("late")); !errors.Is(err, memnet.ErrReset) {
			t.Fatal(err)
		}
	})
}
