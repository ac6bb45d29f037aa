package links

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// echo answers every line with itself.
func echo(t *testing.T, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-done })
}

type talker struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, address string) *talker {
	t.Helper()
	connection, err := dialOnce(address)
	if err != nil {
		t.Fatal(err)
	}
	return newTalker(t, connection)
}

func dialOnce(address string) (net.Conn, error) {
	return net.DialTimeout("tcp", address,
		time.Second)
}

func newTalker(t *testing.T, connection net.Conn) *talker {
	t.Cleanup(func() { connection.Close() })
	return &talker{t, connection, bufio.NewReader(connection)}
}

func (c *talker) say(text string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c *talker) hears(patience time.Duration) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		c.t.Fatal(err)
	}
	return c.lines.ReadString('\n')
}

// Where nothing is to come, this is how long a test listens.
const silence = 50 * time.Millisecond

func TestProxiesCutEachDirection(t *testing.T) {
	p, err := NewProxies(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	echo(t, p.Address(0).Listen)
	there, back := Link{Clients, 0}, Link{0, Clients}
	c := dial(t, p.Address(0).Advertise)
	for i, cut := range []Link{there, back} {
		if err := p.Set(map[Link]Shape{cut: {Cut: true}, {Clients, 1}: {Cut: true},
			{1, 0}: {Cut: true}}); err != nil {
			t.Fatal(err)
		}
		c.say(fmt.Sprint("held back ", i))
		if got, err := c.hears(silence); err == nil {
			t.Errorf("through a cut link %v came %q", cut, got)
		}
		if err := p.Set(map[Link]Shape{cut: {}}); err != nil {
			t.Fatal(err)
		}
		if got, err := c.hears(time.Minute); err != nil || got != fmt.Sprintf("held back %d\n", i) {
			t.Errorf("after the link %v was healed: %q %v", cut, got, err)
		}
	}
	begin := time.Now()
	if err := p.Set(map[Link]Shape{there: {Delay: 30 * time.Millisecond},
		back: {Delay: 20 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	c.say("slowly")
	if got, err := c.hears(time.Minute); err != nil || got != "slowly\n" ||
		time.Since(begin) < 50*time.Millisecond {
		t.Errorf("over slow links came %q (%v) after %v, which should be 50ms at least", got, err,
			time.Since(begin))
	}
	if err := p.Set(map[Link]Shape{there: {Cut: true, Refused: true}, back: {}}); err != nil {
		t.Fatal(err)
	}
	c.say("refused")
	if got, err := c.hears(time.Minute); err == nil {
		t.Errorf("over a link that refuses came %q", got)
	}
}
