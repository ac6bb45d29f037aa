package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// guarded is a server that has peers, with a policy.
type guarded struct {
	addr string
	core *countingCore
}

type countingCore struct {
	clusterpb.UnimplementedCoreServer
	clusterpb.UnimplementedBootstrapServer
	calls int
}

func (c *countingCore) Heartbeat(context.Context, *clusterpb.HeartbeatRequest) (
	*clusterpb.HeartbeatResponse, error) {
	c.calls++
	return &clusterpb.HeartbeatResponse{}, nil
}

func guard(t *testing.T, config ServerConfig) guarded {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := guarded{addr: l.Addr().String(), core: &countingCore{}}
	s := NewServer(config)
	clusterpb.RegisterCoreServer(s, g.core)
	clusterpb.RegisterBootstrapServer(s, g.core)
	clusterpb.RegisterClusterServer(s, &clusterServer{})
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); <-done })
	return g
}

// TestWhoIsAServer: what servers ask is answered to those alone that are known as servers, by gRPC
// and on connections of peers; what clients ask is answered to all.
func TestWhoIsAServer(t *testing.T) {
	servers, clients := newAuthority(t), newAuthority(t)
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	asClient := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	sign := func(a *authority, name string, usage []x509.ExtKeyUsage, names ...string) {
		a.sign(t, name, &x509.Certificate{IPAddresses: local, ExtKeyUsage: usage, DNSNames: names})
	}
	sign(servers, "server", both)
	sign(servers, "named", both, "node.tidemark")
	sign(clients, "server", both)
	sign(clients, "client", asClient)
	sign(clients, "named", both, "node.tidemark")
	files := func(a *authority, cert, ca, peerCA, name string) *authn.TLSFiles {
		f, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: a.path(cert + ".crt"),
			Key: a.path(cert + ".key"),
			CA:  ca, PeerCA: peerCA, PeerName: name})
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	with := func(a *authority, cert, ca string) *tls.Config {
		c, err := authn.LoadClientTLS(a.path(cert+".crt"), a.path(cert+".key"), ca)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	byUsage := files(clients, "server", clients.path("ca.crt"), "", "")
	byAuthority := files(servers, "server", clients.path("ca.crt"), servers.path("ca.crt"), "")
	byName := files(clients, "named", clients.path("ca.crt"), "", "node.tidemark")
	secure := func(f *authn.TLSFiles) ServerConfig {
		return ServerConfig{TLS: f.Server(true), Peers: &authn.PeerPolicy{Certificate: f.IsPeer}}
	}
	secret, other := transport.Secret("0123456789abcdef"), transport.Secret("another secret..")
	bySecret := ServerConfig{Peers: &authn.PeerPolicy{Secret: secret}}
	for _, c := range []struct {
		name   string
		server ServerConfig
		dialer client.DialerConfig
		// refused is in what a caller hears that is taken for no server; "" if it is taken for one.
		refused string
		// strange: not even clients' calls are answered.
		strange bool
	}{
		{name: "a server's usage", server: secure(byUsage),
			dialer: client.DialerConfig{TLSNow: byUsage.Client}},
		{name: "a client's usage", server: secure(byUsage),
			dialer:  client.DialerConfig{TLS: with(clients, "client", clients.path("ca.crt"))},
			refused: "it has no usage for server authentication"},
		{name: "the servers' authority", server: secure(byAuthority),
			dialer: client.DialerConfig{TLSNow: byAuthority.Client}},
		{name: "the clients' authority, with a server's usage", server: secure(byAuthority),
			dialer:  client.DialerConfig{TLS: with(clients, "server", servers.path("ca.crt"))},
			refused: "was not signed by an authority of --tls-peer-ca"},
		{name: "the servers' name", server: secure(byName),
			dialer: client.DialerConfig{TLSNow: byName.Client}},
		{name: "without the servers' name", server: secure(byName),
			dialer:  client.DialerConfig{TLS: with(clients, "server", clients.path("ca.crt"))},
			refused: "does not have the name node.tidemark"},
		{name: "the secret", server: bySecret, dialer: client.DialerConfig{Secret: secret}},
		{name: "no secret", server: bySecret, refused: "give the server that calls the --secret-file"},
		{name: "another secret", server: bySecret, dialer: client.DialerConfig{Secret: other},
			strange: true,
			refused: "the cluster secret is not that of this server"},
		{name: "a secret that this server has not",
			server:  ServerConfig{Peers: &authn.PeerPolicy{Open: true}},
			dialer:  client.DialerConfig{Secret: secret},
			strange: true, refused: "was started without a cluster secret"},
		{name: "open", server: ServerConfig{Peers: &authn.PeerPolicy{Open: true}}},
		{name: "nothing to know servers by", server: ServerConfig{Peers: &authn.PeerPolicy{}},
			refused: "which are known here by nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := guard(t, c.server)
			d := client.NewDialer(c.dialer)
			defer d.Close()
			conn := mustConn(t, d, g.addr)
			check := func(what string, err error, allowed codes.Code) {
				t.Helper()
				taken := status.Code(err) == allowed
				if taken != (c.refused == "") || !taken && !strings.Contains(err.Error(), c.refused) {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := clusterpb.NewCoreClient(conn).Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{})
			check("a heartbeat", err, codes.OK)
			if (g.core.calls == 1) != (c.refused == "") {
				t.Errorf("%d heartbeats got through", g.core.calls)
			}
			_, err = clusterpb.NewBootstrapClient(conn).Hello(t.Context(), &clusterpb.BootstrapHello{})
			check("a bootstrap hello", err, codes.Unimplemented)
			snapshot, err := peerpb.NewPeerClient(conn).Snapshot(t.Context())
			if err == nil {
				_, err = snapshot.CloseAndRecv()
			}
			check("a snapshot", err, codes.NotFound)
			raw, err := d.Open(t.Context(), g.addr, helloOfPeer(7, 1, 2, "data"))
			if err == nil {
				err = raw.AwaitAccepted()
				raw.Close()
			}
			check("a peer's connection", statusOf(err), codes.NotFound)
			_, err = clusterpb.NewClusterClient(conn).Status(t.Context(), &clusterpb.StatusRequest{})
			if (err != nil) != c.strange {
				t.Errorf("a client's call: %v", err)
			}
		})
	}
}

// statusOf is the gRPC status in an error's chain.
func statusOf(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return err
}

// TestOwnCertificateIsAServers: a server whose certificate the others would refuse does not start.
func TestOwnCertificateIsAServers(t *testing.T) {
	a := newAuthority(t)
	a.sign(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{
		x509.ExtKeyUsageClientAuth}})
	_, err := authn.LoadTLSFiles(authn.TLSConfig{Cert: a.path("client.crt"),
		Key: a.path("client.key"),
		CA:  a.path("ca.crt")})
	if err == nil || !strings.Contains(err.Error(), "would not be taken for a server's") {
		t.Error(err)
	}
}

// helloOfPeer is what a peer's connection begins with.
func helloOfPeer(cluster, from, to uint64, realm string) []byte {
	b := []byte{wire.HelloPeer}
	for _, number := range []uint64{cluster, from, to} {
		b = binary.LittleEndian.AppendUint64(b, number)
	}
	return append(b, realm...)
}
