package links

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestSocketInode(t *testing.T) {
	const table = "  sl  local_address rem_address   st tx_queue rx_queue " +
		"tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000" +
		"     0        0 1111 1 0000000000000000 100 0 0 10 0\n" +
		"   1: 0100007F:9C40 0100007F:1F90 06 00000000:00000000 00:00000000 00000000" +
		"     0        0 0 1 0000000000000000 20 4 30 10 -1\n" +
		"   2: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000" +
		"     0        0 2222 1 0000000000000000 20 4 30 10 -1\n" +
		"   3: 0200007F:9C41 0100007F:1F90 01 00000000:00000000 00:00000000 00000000" +
		"     0        0 3333 1 0000000000000000 20 4 30 10 -1\n"
	for _, c := range []struct {
		port  int
		inode string
		ok    bool
	}{{8080, "1111", true}, {40000, "2222", true}, {40001, "", false}, {1, "", false}} {
		if inode, ok := socketInode(strings.NewReader(table), c.port); inode != c.inode ||
			ok != c.ok {
			t.Errorf("port %d: %q %v, want %q %v", c.port, inode, ok, c.inode, c.ok)
		}
	}
}

func TestOwnerOfOwnSocket(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	connection, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	port := connection.LocalAddr().(*net.TCPAddr).Port
	if h, ok := ownerOf(port, map[Host]int{3: os.Getpid()}); h != 3 || !ok {
		t.Errorf("owner %v %v, want this process", h, ok)
	}
	if _, ok := ownerOf(port, map[Host]int{3: 1 << 30}); ok {
		t.Error("a process that is not there owns a socket")
	}
}

func TestProxiesKnowWhoConnects(t *testing.T) {
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
	p.Started(1, os.Getpid()) // this process plays the other server
	if err := p.Set(map[Link]Shape{{Clients, 0}: {Cut: true}}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, p.Address(0).Advertise)
	c.say("hello")
	if got, err := c.hears(time.Minute); err != nil || got != "hello\n" {
		t.Errorf("a server was taken for a client: %q %v", got, err)
	}
}
