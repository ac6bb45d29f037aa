package rpc

import (
	"net"
	"testing"
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
		c := &connPace{pace: strained("host"), of: "host", closed: make(chan struct{}),
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
		c := &connPace{pace: x.pace, of: "host"}
		c.calls.Store(x.calls)
		c.exempt.Store(x.exempt)
		if got := c.most(much); got != x.want {
			t.Errorf("calls %v, exempt %v: %d bytes, want %d", x.calls, x.exempt, got, x.want)
		}
	}
}

// A host that is far ahead gets no more connections than it is granted; others get theirs.
func TestOverdueHost(t *testing.T) {
	places := quota.NewPlaces(1000, grantedConnections, placeSettled)
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
	places := quota.NewPlaces(1000, grantedConnections, placeSettled)
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
