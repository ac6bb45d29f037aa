package isolation

import (
	"context"
	"net"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A server that is cut off loses its connections and gets no new ones, in both directions, until it
// is joined. The others, and the server with itself, go on.
func TestCut(t *testing.T) {
	ctx := context.Background()
	var n Network
	addresses := make([]string, 3)
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses[i] = l.Addr().String()
	}
	dial := func(from, to int) (net.Conn, error) {
		return n.Dialer(addresses[from])(ctx, addresses[to])
	}
	made := map[[2]int]net.Conn{}
	for from := range addresses {
		for to := range addresses {
			c, err := dial(from, to)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			made[[2]int{from, to}] = c
		}
	}
	n.Cut(addresses[1])
	for pair, c := range made {
		lost := pair[0] != pair[1] && (pair[0] == 1 || pair[1] == 1)
		if _, err := c.Write([]byte{1}); (err != nil) != lost {
			t.Errorf("a connection from %d to %d: %v", pair[0], pair[1], err)
		}
		again, err := dial(pair[0], pair[1])
		if (err != nil) != lost {
			t.Errorf("a new connection from %d to %d: %v", pair[0], pair[1], err)
		}
		if err == nil {
			_ = again.Close()
		}
	}
	if !n.IsCut(addresses[1]) || n.IsCut(addresses[0]) {
		t.Error("the wrong server is cut off")
	}
	if _, err := n.Dialer("")(ctx, addresses[1]); err == nil {
		t.Error("a client reaches the server that is cut off")
	}
	n.Join(addresses[1])
	c, err := dial(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}
