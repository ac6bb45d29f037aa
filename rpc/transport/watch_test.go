package transport

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// watched makes two ends, of which both are watched, and read, but for those that are not to.
func watched(t *testing.T, limit time.Duration,
	reads [2]bool) (ends [2]*Conn, broken [2]chan error) {
	a, b := net.Pipe()
	for i, raw := range []net.Conn{a, b} {
		c := newConn(newSocket(raw), nil, nil)
		ends[i], broken[i] = c, make(chan error, 1)
		keepalives, over := make(chan struct{}, 1), make(chan struct{})
		c.Watch(limit, func() {
			select {
			case keepalives <- struct{}{}:
			default:
			}
		})
		go func() {
			for {
				select {
				case <-keepalives:
					if c.SendKeepalive() != nil {
						return
					}
				case <-over:
					return
				}
			}
		}()
		t.Cleanup(func() { _ = c.Close(); close(over) })
		if reads[i] {
			go func() {
				_, err := c.Receive()
				broken[i] <- err
			}()
		}
	}
	return ends, broken
}

// Two sides that say nothing keep their connection.
func TestKeepalivesKeepAQuietConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, broken := watched(t, 4*Tick, [2]bool{true, true})
		time.Sleep(time.Hour)
		for i := range broken {
			if len(broken[i]) > 0 {
				t.Errorf("side %d: %v", i, <-broken[i])
			}
		}
	})
}

// A side whose other side says nothing breaks the connection after the limit; and a side that does
// not read, when nothing that it writes moves.
func TestSilenceBreaksAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := newConn(newSocket(a), nil, nil)
		c.Watch(4*Tick, func() {})
		began := time.Now()
		if _, err := c.Receive(); err == nil {
			t.Fatal("no error")
		}
		if lasted := time.Since(began); lasted != 4*Tick {
			t.Fatalf("after %v", lasted)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		c := newConn(newSocket(a), nil, nil)
		c.Watch(4*Tick, func() {})
		time.Sleep(time.Minute) // it neither reads nor writes: nothing is known
		began := time.Now()
		if err := c.Send([]byte("this is not read")); err == nil {
			t.Fatal("no error")
		}
		if lasted := time.Since(began); lasted > 6*Tick {
			t.Fatalf("after %v", lasted)
		}
	})
}

// A pause of the process is not the other side's silence.
func TestSlowReaderIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ends, broken := watched(t, 4*Tick, [2]bool{true, false})
		time.Sleep(time.Second)
		// The second end reads now and then; meanwhile the first hears its keepalives.
		go func() {
			for {
				if _, err := ends[1].Receive(); err != nil {
					return
				}
			}
		}()
		time.Sleep(time.Minute)
		if len(broken[0]) > 0 {
			t.Fatal(<-broken[0])
		}
	})
}

// Ticks are as long apart as is asked for, and fall on the same moments whenever that is.
func TestTicksFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, least := range []time.Duration{0, Tick / 2, Tick} {
			for range 100 {
				time.Sleep(37 * time.Millisecond)
				d := UntilTick(least)
				if d < least || d >= least+Tick && d > Tick {
					t.Errorf("a tick %v later, at least %v", d, least)
				}
				if at := time.Now().Add(d).UnixNano(); at%int64(Tick) != 0 {
					t.Errorf("a tick %v beside the others", time.Duration(at%int64(Tick)))
				}
			}
		}
	})
}
