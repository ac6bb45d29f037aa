package rpc

import (
	"net"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// ownedBy is for how long a host has to wait for its debts.
func ownedBy(p *quota.Pace, host string) time.Duration { return p.Ahead(host, time.Now()) }

// A host owes for connections that end without having been of use; not for others, nor for those on
// which nothing has come, nor for a server's.
func TestUselessConnections(t *testing.T) {
	begin := func(c *connPace) { c.begun.Store(true) }
	for name, x := range map[string]struct {
		does func(*connPace)
		owes bool
	}{
		"nothing":          {func(*connPace) {}, false},
		"something":        {begin, true},
		"something of use": {func(c *connPace) { begin(c); c.use() }, false},
		"a server":         {func(c *connPace) { begin(c); c.exempt.Store(true) }, false},
	} {
		p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
		for range 20 {
			c := &connPace{pace: p, of: "host", closed: make(chan struct{})}
			x.does(c)
			c.close()
			c.close() // nothing more
		}
		if owes := ownedBy(p, "host") > 0; owes != x.owes {
			t.Errorf("%s: it owes %v", name, owes)
		}
	}
}

// What is large lets others go first, and rests only if others have waited.
func TestRest(t *testing.T) {
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
	c := &connPace{pace: p, of: "host", closed: make(chan struct{})}
	c.begin(time.Now())
	c.rest() // within its turn: nothing
	c.begin(time.Now().Add(-time.Hour))
	began := time.Now()
	c.rest() // after a turn of an hour
	if took := time.Since(began); took < largeRest {
		t.Errorf("it has rested for %s", took)
	}
	if now := time.Now(); now.Sub(turnsFrom)-time.Duration(c.since.Load()) > time.Minute {
		t.Error("its turn has not begun anew")
	}
	c.close()
	c.begin(time.Now().Add(-time.Hour))
	c.rest() // ends at once
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
	p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
	c := &connPace{pace: p, of: "host", paused: func(time.Duration) {}, closed: make(chan struct{})}
	stranger := func() bool {
		_, is := p.Charge("host", 0, time.Now())
		return is
	}
	c.charge(0)
	c.use()
	if stranger() {
		t.Fatal("a host that was of use is a stranger")
	}
	c.owe(3 * time.Second)
	if !stranger() {
		t.Fatal("a host that owes much is none")
	}
	c.charge(0)
	c.use() // it has not paid yet
	if !stranger() {
		t.Error("it is none before it has paid")
	}
	for p.Ahead("host", time.Now()) > time.Second {
		time.Sleep(10 * time.Millisecond)
	}
	c.charge(0)
	c.use()
	if stranger() {
		t.Error("it stays a stranger")
	}
}
