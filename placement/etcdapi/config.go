package etcdapi

import (
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/backend"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/users"
)

const (
	// DefaultMaxRequestBytes and DefaultMaxOperations are etcd's limits.
	DefaultMaxRequestBytes = 1536 << 10
	DefaultMaxOperations   = 128
	// RequestOverheadBytes is by how much a gRPC message may be larger than a request.
	RequestOverheadBytes = 512 << 10
	// Version is the version of etcd that clients are told that they talk to.
	Version      = minorVersion + ".6"
	minorVersion = "3.6"
)

// Limits bound what a call may ask for and how long it may take.
type Limits struct {
	// MaxRequestBytes bounds a request that goes through the log. The gRPC server has to accept
	// messages of RequestOverheadBytes more. Default DefaultMaxRequestBytes; more than
	// store.MaxCommandBytes has no effect.
	MaxRequestBytes int
	// MaxOperations is how many comparisons, and how many operations on either branch, a
	// transaction may have; nested ones have what is left. Default DefaultMaxOperations.
	MaxOperations int
	// Quota is the size of the store that Status tells as its quota; 0: there is none.
	Quota int64
	// LeaderGrace is how long there may be no leader before streams end whose clients demand one.
	// Default 3 s.
	LeaderGrace time.Duration
	// StallTimeout is for how long a client may read nothing of a snapshot that it is sent until
	// the stream is ended. Default 5 min.
	StallTimeout time.Duration
}

// Config is what Services are made of. Store, Cluster and Random must be set.
type Config struct {
	Store   backend.Store
	Cluster backend.Cluster
	// Random is where lease ids come from that the client does not choose. Any goroutine reads it.
	Random io.Reader
	Limits
	// TemporaryDirectory is where a snapshot is written before it is sent, one at a time. It needs
	// room for the whole history, four times if as many snapshots are sent as may be. Default: that
	// of the operating system.
	TemporaryDirectory string
	// Callers says who makes a call. Default authorize.Connections.
	Callers authorize.Callers
	// CertificateUsers takes the common name of a client's verified certificate for its user, if
	// the client comes without a token. It is for servers that ask clients for certificates.
	CertificateUsers bool
	// Keyspaces are those whose data users guard as well. nil: there are none.
	Keyspaces users.Keyspaces
	// Passwords says how they are hashed. The zero value has etcd's cost, and two at a time.
	Passwords passwords.Config
	// Now is the time by which tokens age. Default time.Now.
	Now func() time.Time
	// Logger is told what is refused and what is administered, with audit=true. Default: nothing is
	// logged.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Services.Close. nil: none does.
	Registerer prometheus.Registerer
	// Answers bounds the answers that are on their way to clients. nil: nothing does.
	Answers Answers
}

func (c *Config) ensureDefaults() error {
	if c.Store == nil || c.Cluster == nil || c.Random == nil {
		return errors.New("etcd API: Store, Cluster and Random must be set")
	}
	if c.MaxRequestBytes <= 0 {
		c.MaxRequestBytes = DefaultMaxRequestBytes
	}
	if c.MaxOperations <= 0 {
		c.MaxOperations = DefaultMaxOperations
	}
	if c.LeaderGrace <= 0 {
		c.LeaderGrace = 3 * time.Second
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 5 * time.Minute
	}
	if c.Callers == nil {
		c.Callers = authorize.Connections{}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
