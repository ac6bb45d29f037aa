package authorize

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
)

// Callers identifies callers, as far as the connection, and the server that passed a call on, show
// them.
type Callers interface {
	// TLS returns the TLS connection that a call came on; nil if there is none.
	TLS(context.Context) *tls.ConnectionState
	// PassedOn returns the common name of the client's certificate for a call that another server
	// passes on, "" if the client has no certificate. ok is false if the client itself calls.
	PassedOn(context.Context) (commonName string, ok bool)
	// Party names the party of a call's client. Parties share the server's time: passwords are
	// hashed, and commands executed, in turns by party.
	Party(context.Context) string
}

// Connections is the Callers of a server to which nobody passes calls on. It knows what gRPC knows
// of a connection. A party is a host.
type Connections struct{}

// TLS implements Callers.
func (Connections) TLS(ctx context.Context) *tls.ConnectionState {
	from, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	if info, ok := from.AuthInfo.(credentials.TLSInfo); ok {
		return &info.State
	}
	return nil
}

// PassedOn implements Callers.
func (Connections) PassedOn(context.Context) (string, bool) { return "", false }

// Party implements Callers.
func (Connections) Party(ctx context.Context) string {
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	if host, _, err := net.SplitHostPort(from.Addr.String()); err == nil {
		return host
	}
	return from.Addr.String()
}

// CommonName returns the common name of the verified certificate of a call's client; false if there
// is none. A call of an HTTP gateway, this server's (package gateway) or another one, has none:
// there a certificate names no user, as in etcd.
func CommonName(ctx context.Context, state *tls.ConnectionState) (string, bool) {
	md, ok := metadata.FromIncomingContext(ctx)
	if state == nil || !ok || len(md.Get("grpcgateway-accept")) > 0 {
		return "", false
	}
	for _, chain := range state.VerifiedChains {
		if len(chain) > 0 {
			return chain[0].Subject.CommonName, true
		}
	}
	return "", false
}

// Config configures an Authorizer. All fields but Registerer must be set.
type Config struct {
	Callers Callers
	// CertificateUsers makes the common name of a client's verified certificate its user, if the
	// client sends no token.
	CertificateUsers bool
	// Now is the clock by which tokens age.
	Now func() time.Time
	// Logger gets refusals and administration, with audit=true.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Close. nil: there are none.
	Registerer prometheus.Registerer
}

// Authorizer decides about the calls of the etcd API at one member.
type Authorizer struct {
	*backend.Backend
	Callers
	certificateUsers bool
	now              func() time.Time
	logger           *slog.Logger
	uses             *tokenUses
	metrics          *metrics
	// unadministered and refused bound the log lines for unsuccessful calls: administrative ones,
	// and all others.
	unadministered, refused auditLimit
}

// New makes an Authorizer.
func New(b *backend.Backend, config Config) (*Authorizer, error) {
	metrics, err := newMetrics(config.Registerer)
	if err != nil {
		return nil, err
	}
	return &Authorizer{Backend: b, Callers: config.Callers,
		certificateUsers: config.CertificateUsers, now: config.Now, logger: config.Logger,
		uses: newTokenUses(config.Now), metrics: metrics}, nil
}

// Close unregisters the metrics.
func (a *Authorizer) Close() { a.metrics.close() }

// CountLogin counts a checked password.
func (a *Authorizer) CountLogin(right bool) { a.metrics.login(right) }
