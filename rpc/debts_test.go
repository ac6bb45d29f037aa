package rpc

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// ownedBy is for how long a host has to wait for its debts.
func ownedBy(p *quota.Pace, host string) time.Duration { return p.Ahead(host, time.Now()) }

// A host owes for connections that end without having been of use, whether or not anything has come
// on them; not for others, nor for a server's.
func TestUselessConnections(t *testing.T) {
	for name, x := range map[string]struct {
		does func(*connPace)
		owes bool
	}{
		"nothing":          {func(*connPace) {}, true},
		"something of use": {func(c *connPace) { c.use() }, false},
		"a server":         {func(c *connPace) { c.exempt.Store(true) }, false},
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
	synctest.Test(t, func(t *testing.T) {
		p := quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })
		c := &connPace{pace: p, of: "host", paused: func(time.Duration) {},
			closed: make(chan struct{})}
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
		time.Sleep(2 * time.Second)
		c.charge(0)
		c.use()
		if stranger() {
			t.Error("it stays a stranger")
		}
	})
}

// What was read of a connection that is closed is not worked off any more, however much that is.
func TestNothingIsDoneForClosedConnections(t *testing.T) {
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{
		Pace: quota.NewPace(1, func(time.Time) quota.Strain { return quota.Relaxed })})
	var handled atomic.Int32
	ended := make(chan struct{})
	s.ServeClients(NewBatchServer(BatchServerConfig{Handle: func(_ uint64, batch []*kvpb.Request,
		reply func(*kvpb.Response)) {
		if handled.Add(1) == 1 {
			s.mu.Lock()
			for c := range s.mu.conns {
				_ = c.Raw().Close()
			}
			s.mu.Unlock()
		}
		echoAll(0, batch, reply)
	}}))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(raw)
	}()
	stream, end := openConn(t, network{}.dialer(t, "c"), raw.Addr().String())
	defer end()
	if err := stream.Send(&kvpb.BatchRequest{Hello: &kvpb.Hello{Client: 1, Stream: 1}}); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(ended)
		_ = lastError(stream)
	}()
	// All of them in one write: the server has read them when it handles the first.
	const messages = 500
	var all []byte
	for id := range uint64(messages) {
		b, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{
			{Id: id + 1, Sequence: id + 1, Command: get("key").Command}}})
		if err != nil {
			t.Fatal(err)
		}
		all = append(binary.LittleEndian.AppendUint32(all, uint32(len(b))), b...)
	}
	if _, err := stream.(*handConn).conn.Raw().Write(all); err != nil {
		t.Fatal(err)
	}
	<-ended
	s.Stop()
	<-served
	if n := handled.Load(); n == 0 || n > messages/10 {
		t.Errorf("%d of %d messages were handled", n, messages)
	}
}
