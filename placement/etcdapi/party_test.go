package etcdapi

import (
	"context"
	"crypto/rand"
	"net"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/peer"
)

// Clients that try passwords, or have commands done, have turns by party, and not by address: one
// host may have 2^64 of these.
func TestTurnsByParty(t *testing.T) {
	var asked atomic.Int64
	g := serveUsers(t, func(c *Config) {
		c.Callers = callers{party: func(context.Context) string { asked.Add(1); return "party" }}
	})
	user := g.as(t, "u", "pw")
	for name, call := range map[string]func() error{
		"Authenticate": func() error {
			_, err := g.services.Auth.Authenticate(t.Context(),
				&pb.AuthenticateRequest{Name: "u", Password: "pw"})
			return err
		},
		"Put": func() error {
			_, err := user.Put(t.Context(), "u/k", "v")
			return err
		},
	} {
		before := asked.Load()
		if err := call(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if asked.Load() == before {
			t.Errorf("%s does not ask whose turn it takes", name)
		}
	}
}

// Without Config.Callers, it is the host, whatever the port.
func TestPartyByDefault(t *testing.T) {
	c := Config{Store: newLone(t), Cluster: &alone{}, Random: rand.Reader}
	if err := c.ensureDefaults(); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{"10.0.0.1:7": "10.0.0.1", "[fe80::1]:7": "fe80::1"} {
		a, err := net.ResolveTCPAddr("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Callers.Party(peer.NewContext(t.Context(), &peer.Peer{Addr: a})); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
	if got := c.Callers.Party(t.Context()); got != "" {
		t.Errorf("without an address: %q", got)
	}
}
