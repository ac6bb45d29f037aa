package links

import (
	"errors"
	"flag"
	"os"
	"slices"
	"testing"
	"time"
)

var withReal = flag.Bool("links.real", false,
	"make real network namespaces (root, and no other nemesis may run meanwhile)")

func TestOnlyOursAreRemoved(t *testing.T) {
	got := ours("tmnem1 (id: 0)\nother\ntmnem12\ntmnemesis\ntmnem\n\n")
	if want := []string{"tmnem1", "tmnem12"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNamespaces runs this very test as the server in a namespace, which echoes.
func TestNamespaces(t *testing.T) {
	if !*withReal {
		t.Skip("run with -links.real, as root")
	}
	n, err := NewNamespaces(1)
	if errors.Is(err, ErrNotHere) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	path, args := n.Command(0, os.Args[0], []string{"-test.run", "TestEchoInNamespace",
		"-links.echo", n.Address(0).Listen})
	server, err := os.StartProcess("/usr/bin/env", append([]string{"env", path}, args...),
		&os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
		_, _ = server.Wait()
	})
	var c *talker
	for deadline := time.Now().Add(10 * time.Second); c == nil; {
		if connection, err := dialOnce(n.Address(0).Listen); err == nil {
			c = newTalker(t, connection)
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		} else {
			time.Sleep(10 * time.Millisecond)
		}
	}
	there, back := Link{Clients, 0}, Link{0, Clients}
	set := func(s map[Link]Shape) {
		t.Helper()
		if err := n.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(want string) {
		t.Helper()
		if got, err := c.hears(time.Minute); err != nil || got != want+"\n" {
			t.Fatalf("heard %q %v, want %q", got, err, want)
		}
	}
	c.say("first")
	hears("first")
	for _, l := range []Link{there, back} {
		set(map[Link]Shape{l: {Cut: true}})
		c.say(l.String())
		if got, err := c.hears(silence); err == nil {
			t.Errorf("through the cut link %v came %q", l, got)
		}
		set(map[Link]Shape{l: {}})
		hears(l.String()) // TCP sends it again
	}
	begin := time.Now()
	set(map[Link]Shape{there: {Delay: 30 * time.Millisecond, Jitter: time.Millisecond},
		back: {Delay: 20 * time.Millisecond}})
	c.say("slowly")
	hears("slowly")
	if d := time.Since(begin); d < 50*time.Millisecond {
		t.Errorf("over slow links it took %v, which should be 50ms at least", d)
	}
	set(map[Link]Shape{there: {Cut: true, Refused: true}, back: {}})
	if connection, err := dialOnce(n.Address(0).Listen); err == nil {
		connection.Close()
		t.Error("a link that refuses took a connection")
	}
	set(map[Link]Shape{there: {}})
	c.say("last")
	hears("last")
}

var echoAt = flag.String("links.echo", "",
	"echo at this address until killed (the test starts itself so)")

func TestEchoInNamespace(t *testing.T) {
	if *echoAt == "" {
		t.Skip("only as a process of TestNamespaces")
	}
	echo(t, *echoAt)
	select {}
}
