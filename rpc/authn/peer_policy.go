package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/backuppb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
)

// Servers and clients connect to one address, but are not trusted alike: Raft messages, snapshots
// and heartbeats of servers are believed. So requests that are for servers only are answered only
// on connections recognized as servers'.

// PeerPolicy decides which openers are servers. The zero value accepts none.
type PeerPolicy struct {
	// Certificate returns an error if a TLS connection is not a server's. If the function is nil,
	// no certificate is a server's.
	Certificate func(*tls.ConnectionState) error
	// Secret is the cluster's secret: an opener without TLS that proves to know it is a server.
	Secret transport.Secret
	// Open accepts every opener that says so as a server, until the policy is closed.
	Open bool

	unauthenticated unauthenticatedPeers
}

// serverServices are the gRPC services that are for servers.
var serverServices = []string{
	clusterpb.Core_ServiceDesc.ServiceName,
	clusterpb.Bootstrap_ServiceDesc.ServiceName,
	clusterpb.Coordination_ServiceDesc.ServiceName,
	clusterpb.Authority_ServiceDesc.ServiceName,
	peerpb.Peer_ServiceDesc.ServiceName,
	backuppb.Worker_ServiceDesc.ServiceName,
	diagnosispb.Diagnosis_ServiceDesc.ServiceName,
}

// ForServers reports that a gRPC method is for servers only.
func ForServers(method string) bool {
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return slices.Contains(serverServices, service)
}

// check returns an error if the other side is not accepted as a server. state is nil without TLS;
// proved reports that the opener knows the secret.
func (p *PeerPolicy) check(state *tls.ConnectionState, proved bool) error {
	if p.AcceptsAll() {
		return nil
	}
	return p.checkProof(state, proved)
}

// checkProof is check regardless of Open.
func (p *PeerPolicy) checkProof(state *tls.ConnectionState, proved bool) error {
	switch {
	case proved && len(p.Secret) > 0:
		return nil
	case state != nil && p.Certificate != nil:
		if err := p.Certificate(state); err != nil {
			return status.Errorf(codes.PermissionDenied, "this is for servers of the cluster: %v", err)
		}
		return nil
	case state != nil:
		return status.Error(codes.PermissionDenied, "this is for servers of the cluster, which are "+
			"known here by no certificate: start this server with --tls-ca")
	case len(p.Secret) > 0:
		return status.Error(codes.PermissionDenied, "this is for servers of the cluster: give the "+
			"server that calls the --secret-file of this one")
	}
	return status.Error(codes.PermissionDenied, "this is for servers of the cluster, which are "+
		"known here by nothing: start this server with TLS or --secret-file")
}

// Provable reports that servers can prove to this one that they are servers.
func (p *PeerPolicy) Provable() bool { return p.Certificate != nil || len(p.Secret) > 0 }

// AcceptsAll reports that every opener that says so is accepted as a server.
func (p *PeerPolicy) AcceptsAll() bool {
	return p == nil || p.Open &&
		!p.unauthenticated.closed.Load()
}

// ofConn checks a connection of package transport.
func (p *PeerPolicy) ofConn(c *transport.Conn) error {
	if p == nil {
		return nil
	}
	return p.check(c.TLS(), c.Proved())
}

// ofCall checks the sender of a gRPC call.
func (p *PeerPolicy) ofCall(ctx context.Context, method string) error {
	if p == nil || !ForServers(method) {
		return nil
	}
	var info credentials.AuthInfo
	if from, ok := peer.FromContext(ctx); ok {
		info = from.AuthInfo
	}
	server, known := info.(serverInfo)
	if !known {
		return p.ofInfo(info, p.check)
	}
	if err := p.ofInfo(server.AuthInfo, p.check); err != nil {
		_ = server.conn.Close()
		return status.Errorf(codes.Unavailable, "connect again with the certificate of today: %v", err)
	}
	return nil
}

// serverInfo is the result of the handshake of a server's gRPC connection. Connections outlive
// certificates: a call may come on a connection whose certificate has expired since, or whose
// authority was removed, although the caller has had a new certificate for long. That connection is
// closed, so that the caller makes a new one, which is checked with the new certificate.
type serverInfo struct {
	credentials.AuthInfo
	conn net.Conn
}

// Recognize reports whether the handshake of a gRPC connection has proved that the other side is a
// server. If so, server replaces info.
func (p *PeerPolicy) Recognize(
	info credentials.AuthInfo, conn net.Conn,
) (server credentials.AuthInfo, ok bool) {
	if p.AcceptsAll() || p.ofInfo(info, p.check) != nil {
		return info, false
	}
	return serverInfo{info, conn}, true
}

// ofInfo checks the result of the handshake of a gRPC connection.
func (p *PeerPolicy) ofInfo(
	info credentials.AuthInfo, check func(state *tls.ConnectionState, proved bool) error,
) error {
	switch info := info.(type) {
	case credentials.TLSInfo:
		return check(&info.State, false)
	case transport.ProvedInfo:
		return check(nil, true)
	}
	return check(nil, false)
}

// staleTime is how long a stale connection stays open, so that the answer that says so can reach
// the other side.
const staleTime = time.Second

// Stale reports that the connection of a gRPC call was a server's when it was made, but would not
// be accepted now: the certificate has expired since, or its authority was removed. The connection
// is then closed within about a second, so that the server makes a new one with its present
// certificate.
func (p *PeerPolicy) Stale(ctx context.Context) bool {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	server, known := from.AuthInfo.(serverInfo)
	if !known || p.ofInfo(server.AuthInfo, p.checkProof) == nil {
		return false
	}
	time.AfterFunc(staleTime, func() { _ = server.conn.Close() })
	return true
}

// Proved returns an error if the caller of a gRPC method has not proved to be a server, regardless
// of Open.
func (p *PeerPolicy) Proved(ctx context.Context) error {
	var info credentials.AuthInfo
	if from, ok := peer.FromContext(ctx); ok {
		info = from.AuthInfo
	}
	if server, known := info.(serverInfo); known {
		info = server.AuthInfo
	}
	return p.ofInfo(info, p.checkProof)
}

// ServerOptions makes gRPC check the policy before each call, and count refusals.
func (p *PeerPolicy) ServerOptions(refused *metric.Counter) []grpc.ServerOption {
	if p == nil {
		return nil
	}
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, q any, info *grpc.UnaryServerInfo,
			handle grpc.UnaryHandler) (any, error) {
			if err := p.ofCall(ctx, info.FullMethod); err != nil {
				countRefused(refused, err)
				return nil, err
			}
			return handle(ctx, q)
		}),
		grpc.ChainStreamInterceptor(func(service any, stream grpc.ServerStream,
			info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := p.ofCall(stream.Context(), info.FullMethod); err != nil {
				countRefused(refused, err)
				return err
			}
			stream, done := p.unauthenticated.admit(p, stream, info.FullMethod)
			defer done()
			return handle(service, stream)
		}),
	}
}

// countRefused counts a refused call of an unauthenticated caller. A server with a stale connection
// does not count.
func countRefused(refused *metric.Counter, err error) {
	if status.Code(err) == codes.PermissionDenied {
		refused.Inc()
	}
}

// PeerRule says which certificates are servers'.
type PeerRule struct {
	// Authorities sign servers' certificates. nil: the authorities of clients sign them too.
	Authorities *x509.CertPool
	// Name, if not empty, is a DNS name that servers' certificates must have.
	Name string
}

// Check returns an error if a certificate is not a server's. chain is the certificate, followed by
// those that were sent with it. Without authorities and a name, servers' certificates are those
// with the extended key usage of server authentication (RFC 5280), which clients' certificates do
// not have.
func (r *PeerRule) Check(chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("no certificate was shown")
	}
	leaf := chain[0]
	if r.Authorities != nil {
		between := x509.NewCertPool()
		for _, c := range chain[1:] {
			between.AddCert(c)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: r.Authorities, Intermediates: between,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err != nil {
			return fmt.Errorf("the certificate of %q was not signed by an authority of --tls-peer-ca",
				leaf.Subject)
		}
	}
	if r.Name != "" && !slices.Contains(leaf.DNSNames, r.Name) {
		return fmt.Errorf("the certificate of %q does not have the name %s, which --tls-peer-name "+
			"asks for", leaf.Subject, r.Name)
	}
	if r.Authorities == nil && r.Name == "" &&
		!slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageServerAuth) {
		return fmt.Errorf("the certificate of %q is one of a client: it has no usage for server "+
			"authentication", leaf.Subject)
	}
	return nil
}
