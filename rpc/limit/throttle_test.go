package limit

import (
	"net"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// limiter is a limiter for one processor, which is short or not.
func limiter(short bool) *quota.CPULimiter {
	return quota.NewCPULimiter(1, func() bool { return short })
}

// strained is a limiter in which processors are short, and host has to wait for long.
func strained(host string) *quota.CPULimiter {
	l := limiter(true)
	now := time.Now()
	for range 100 {
		l.Charge("other", 0, now)
		l.Charge(host, time.Second, now)
		now = now.Add(50 * time.Millisecond)
	}
	return l
}

// A connection pauses for what was charged since its last read, also if there is more to do that
// has been read already; one of a server's does not.
func TestPauseBetweenMessages(t *testing.T) {
	for _, exempt := range []bool{false, true} {
		paused := time.Duration(0)
		c := &ConnThrottle{cpu: strained("host"), of: "host", closed: make(chan struct{}),
			paused: func(d time.Duration) { paused += d }}
		c.exempt.Store(exempt)
		c.close() // so that pauses end at once
		c.charge(time.Millisecond)
		if c.between(); (paused > 0) == exempt {
			t.Errorf("exempt %v: it pauses for %s", exempt, paused)
		}
		paused = 0
		if c.between(); paused > 0 {
			t.Errorf("exempt %v: it pauses again, for %s", exempt, paused)
		}
	}
}

// While processors are short, a connection of gRPC reads little at a time, so that its reader
// pauses between what it reads.
func TestLittleAtATime(t *testing.T) {
	const much = 64 << 10
	for _, x := range []struct {
		cpu    *quota.CPULimiter
		calls  bool
		exempt bool
		want   int
	}{
		{strained("host"), true, false, int(turn / costOfCallByte)},
		{strained("host"), true, true, much},
		{strained("host"), false, false, much},
		{limiter(false), true, false, much},
	} {
		c := &ConnThrottle{cpu: x.cpu, of: "host"}
		c.calls.Store(x.calls)
		c.exempt.Store(x.exempt)
		if got := c.most(much); got != x.want {
			t.Errorf("calls %v, exempt %v: %d bytes, want %d", x.calls, x.exempt, got, x.want)
		}
	}
}

// A host that is far ahead gets no more connections than it is granted; others get theirs.
func TestOverdueHost(t *testing.T) {
	places := quota.NewPlaces(1000, grantedConnections, PlaceSettled)
	l := &sharedListener{places: places, cpu: strained("127.0.0.1")}
	enter := func(host string) {
		if places.Enter(host, func() {}) == nil {
			t.Fatalf("no place for %s", host)
		}
	}
	for range overdueConnections {
		if l.overdue("127.0.0.1") {
			t.Fatal("a host does not get what it is granted")
		}
		enter("127.0.0.1")
		enter("127.0.0.2")
	}
	if !l.overdue("127.0.0.1") {
		t.Error("a host that is ahead gets more than it is granted")
	}
	if l.overdue("127.0.0.2") {
		t.Error("a host that does little gets no connection")
	}
	l.cpu = nil
	if l.overdue("127.0.0.1") {
		t.Error("without a limiter a host gets no connection")
	}
}

// A listener closes the connections of such a host, and goes on.
func TestOverdueConnectionIsClosed(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	places := quota.NewPlaces(1000, grantedConnections, PlaceSettled)
	for range overdueConnections {
		places.Enter("127.0.0.1", func() {})
	}
	lost := make(chan struct{}, 1)
	l := &sharedListener{Listener: raw, places: places, cpu: strained("127.0.0.1"),
		lost: func() { lost <- struct{}{} }, paused: func(time.Duration) {}}
	accepted := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.Close()
		}
		accepted <- err
	}()
	conn, err := net.Dial("tcp", raw.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-lost
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	_ = raw.Close()
	if err := <-accepted; err == nil {
		t.Error("the connection was accepted")
	}
}

// ownedBy is for how long a host has to wait for its debts.
func ownedBy(p *quota.CPULimiter, host string) time.Duration { return p.Delay(host, time.Now()) }

// A host owes for connections that end without having been of use, whether or not anything has come
// on them; not for others, nor for a server's.
func TestUselessConnections(t *testing.T) {
	for name, x := range map[string]struct {
		does func(*ConnThrottle)
		owes bool
	}{
		"nothing":          {func(*ConnThrottle) {}, true},
		"something of use": {func(c *ConnThrottle) { c.Use() }, false},
		"a server":         {func(c *ConnThrottle) { c.exempt.Store(true) }, false},
	} {
		p := limiter(false)
		for range 20 {
			c := &ConnThrottle{cpu: p, of: "host", closed: make(chan struct{})}
			x.does(c)
			c.close()
			c.close() // nothing more
		}
		if owes := ownedBy(p, "host") > 0; owes != x.owes {
			t.Errorf("%s: it owes %v", name, owes)
		}
	}
}

// A host that opens connections and says nothing soon gets no more of them.
func TestSilentConnectionsCost(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := limiter(false)
	l := ShareListener(raw, 1000, p).(*sharedListener)
	const opened = 300
	given := make(chan bool, opened)
	l.lost = func() { given <- false }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			given <- true
		}
	}()
	for range opened {
		conn, err := net.Dial("tcp", raw.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	n := 0
	for range opened {
		if <-given {
			n++
		}
	}
	_ = l.Close()
	<-ended
	if n < overdueConnections || n == opened {
		t.Errorf("it got %d connections of %d", n, opened)
	}
}

// What is large lets others go first, and rests only if others have waited.
func TestRest(t *testing.T) {
	p := limiter(false)
	c := &ConnThrottle{cpu: p, of: "host", closed: make(chan struct{})}
	c.begin(time.Now())
	c.Rest() // within its turn: nothing
	c.begin(time.Now().Add(-time.Hour))
	began := time.Now()
	c.Rest() // after a turn of an hour
	if took := time.Since(began); took < largeRest {
		t.Errorf("it has rested for %s", took)
	}
	if now := time.Now(); now.Sub(turnsFrom)-time.Duration(c.since.Load()) > time.Minute {
		t.Error("its turn has not begun anew")
	}
	c.close()
	c.begin(time.Now().Add(-time.Hour))
	c.Rest() // ends at once
}

// Connections of a listener of ShareListener are all of use: what is served there has no greeting.
func TestSharedListenerTrusts(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := limiter(false)
	l := ShareListener(raw, 10, p).(*sharedListener)
	defer l.Close()
	if c := l.throttle("host"); !c.useful.Load() {
		t.Error("a connection is not of use")
	}
}

// A host is verified by the first answer on a connection, and has no more to wait then.
func TestVerifiedByAnAnswer(t *testing.T) {
	l := limiter(false)
	c := &ConnThrottle{cpu: l, of: "host", closed: make(chan struct{})}
	c.charge(time.Second)
	if _, verified := l.Charge("host", 0, time.Now()); verified || l.Delay("host", time.Now()) == 0 {
		t.Fatal("a host without an answer is verified, or need not wait")
	}
	c.Use()
	if _, verified := l.Charge("host", 0, time.Now()); !verified {
		t.Error("a host with an answer is not verified")
	}
	if wait := l.Delay("host", time.Now()); wait > 0 {
		t.Errorf("it has to wait for %s", wait)
	}
}
