package etcdapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
)

// withCertificate is the context of a call by the holder of a certificate, which was verified or
// not, with metadata.
func withCertificate(name string, verified bool, md ...string) context.Context {
	certificate := &x509.Certificate{Subject: pkix.Name{CommonName: name}}
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
	if verified {
		state.VerifiedChains = [][]*x509.Certificate{{certificate}}
	}
	ctx := peer.NewContext(context.Background(), &peer.Peer{
		Addr:     &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7},
		AuthInfo: credentials.TLSInfo{State: state}})
	return metadata.NewIncomingContext(ctx, metadata.Pairs(md...))
}

// The name of a certificate is that of a user, if it was verified and nothing else names one.
func TestCertificateUsers(t *testing.T) {
	g := serveUsers(t, func(c *Config) { c.CertificateUsers = true })
	off := serveUsers(t, nil)
	token := g.token(t, "u", "pw")
	key := &pb.RangeRequest{Key: []byte("u/a")}
	for name, c := range map[string]struct {
		of   *guarded
		ctx  context.Context
		want error
	}{
		"certificate":  {g, withCertificate("u", true), nil},
		"root":         {g, withCertificate("root", true), nil},
		"unknown name": {g, withCertificate("x", true), rpctypes.ErrGRPCPermissionDenied},
		"no name":      {g, withCertificate("", true), rpctypes.ErrGRPCPermissionDenied},
		"not verified": {g, withCertificate("u", false), rpctypes.ErrGRPCUserEmpty},
		"of a gateway": {g, withCertificate("u", true, "grpcgateway-accept", "x"),
			rpctypes.ErrGRPCUserEmpty},
		"token precedes": {g, withCertificate("x", true, "token", token), nil},
		"token not valid": {g, withCertificate("u", true, "token", "x"),
			rpctypes.ErrGRPCInvalidAuthToken},
		"bearer":   {g, withCertificate("x", true, "authorization", "Bearer "+token), nil},
		"not used": {off, withCertificate("u", true), rpctypes.ErrGRPCUserEmpty},
	} {
		if _, err := c.of.services.KV.Range(c.ctx, key); err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// It is in the audit by another name than a user.
	ctx := withCertificate("u", true)
	made := &authorize.Call{Method: "/etcdserverpb.KV/Put", Request: &pb.PutRequest{Key: []byte("v")}}
	_, err := g.services.KV.Put(authorize.WithCall(ctx, made), made.Request.(*pb.PutRequest))
	g.services.Audit(ctx, made, err)
	if lines := g.log.lines(t); len(lines) != 1 || lines[0]["certificate"] != "u" ||
		lines[0]["address"] != "10.0.0.1:7" {
		t.Errorf("%v", lines)
	}
	// What another service administers, another member does in the name of the user.
	for name, c := range map[string]struct {
		ctx  context.Context
		want error
		as   string
	}{
		"certificate of root": {withCertificate("root", true), nil, "root"},
		"token of root": {withCertificate("x", true, "token", g.token(t, "root", "secret")), nil,
			"root"},
		"certificate of a user": {withCertificate("u", true), rpctypes.ErrGRPCPermissionDenied, ""},
		"nobody":                {context.Background(), rpctypes.ErrGRPCUserEmpty, ""},
	} {
		g.log.lines(t)
		user := ""
		_, err := g.services.Administration(c.ctx, "/cluster/Drop", nil,
			func(ctx context.Context, token string) (any, error) {
				there := metadata.NewIncomingContext(ctx, metadata.Pairs("token", token))
				who, err := g.services.Identify(there)
				user = who.GetUser()
				return nil, err
			})
		if err != c.want || user != c.as {
			t.Errorf("%s: %v by %q, want %v by %q", name, err, user, c.want, c.as)
		}
		if lines := g.log.lines(t); len(lines) != 1 || lines[0]["method"] != "/cluster/Drop" {
			t.Errorf("%s: %v", name, lines)
		}
	}
	if who, err := g.services.Identify(context.Background()); err != nil ||
		who.Revision != 0 {
		t.Errorf("a call from nowhere: %v, %v", who, err)
	}
}
