package limit

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// strained is a pace in which processors are short, and host is ahead by much.
func strained(host string) *quota.Pace {
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Short })
	now := time.Now()
	for range 100 {
		p.Charge("other", 0, now)
		p.Charge(host, time.Second, now)
		now = now.Add(50 * time.Millisecond)
	}
	return p
}

// A connection pauses for what was charged since its last read, also if there is more to do that
// has been read already; one of a server's does not.
func TestPauseBetweenMessages(t *testing.T) {
	for _, exempt := range []bool{false, true} {
		paused := time.Duration(0)
		c := &ConnThrottle{pace: strained("host"), of: "host", closed: make(chan struct{}),
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
		pace   *quota.Pace
		calls  bool
		exempt bool
		want   int
	}{
		{strained("host"), true, false, int(turn / costOfCallByte)},
		{strained("host"), true, true, much},
		{strained("host"), false, false, much},
		{quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed }), true, false, much},
	} {
		c := &ConnThrottle{pace: x.pace, of: "host"}
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
	l := &sharedListener{places: places, pace: strained("127.0.0.1")}
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
	l.pace = nil
	if l.overdue("127.0.0.1") {
		t.Error("without a pace a host gets no connection")
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
	l := &sharedListener{Listener: raw, places: places, pace: strained("127.0.0.1"),
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
func ownedBy(p *quota.Pace, host string) time.Duration { return p.Ahead(host, time.Now()) }

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
		p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
		for range 20 {
			c := &ConnThrottle{pace: p, of: "host", closed: make(chan struct{})}
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
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
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
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
	c := &ConnThrottle{pace: p, of: "host", closed: make(chan struct{})}
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

// Connections of a listener with a Pace alone are all of use: what is served there has no greeting.
func TestSharedListenerTrusts(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
	l := ShareListener(raw, 10, p).(*sharedListener)
	defer l.Close()
	if c := l.pacer("host"); !c.useful.Load() {
		t.Error("a connection is not of use")
	}
}

// A host that has lost its standing by what it owed gains it again on connections that stand.
func TestStandingComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
		c := &ConnThrottle{pace: p, of: "host", paused: func(time.Duration) {},
			closed: make(chan struct{})}
		stranger := func() bool {
			_, is := p.Charge("host", 0, time.Now())
			return is
		}
		c.charge(0)
		c.Use()
		if stranger() {
			t.Fatal("a host that was of use is a stranger")
		}
		c.penalize(3 * time.Second)
		if !stranger() {
			t.Fatal("a host that owes much is none")
		}
		c.charge(0)
		c.Use() // it has not paid yet
		if !stranger() {
			t.Error("it is none before it has paid")
		}
		time.Sleep(2 * time.Second)
		c.charge(0)
		c.Use()
		if stranger() {
			t.Error("it stays a stranger")
		}
	})
}
