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
	// RequestOverheadBytes is how much larger than a request a gRPC message may be.
	RequestOverheadBytes = 512 << 10
	// Version is the version of etcd that clients see.
	Version      = minorVersion + ".6"
	minorVersion = "3.6"
)

// Limits bound the size and the time of calls.
type Limits struct {
	// MaxRequestBytes bounds a request that goes through the log. The gRPC server has to accept
	// messages of RequestOverheadBytes more. Default DefaultMaxRequestBytes; more than
	// store.MaxCommandBytes has no effect.
	MaxRequestBytes int
	// MaxOperations bounds the comparisons of a transaction, and the operations of each of its
	// branches; nested transactions may use the rest. Default DefaultMaxOperations.
	MaxOperations int
	// Quota is the size of the store that Status reports as its quota; 0: there is none.
	Quota int64
	// LeaderGrace is how long there may be no leader before streams end whose clients require one.
	// Default 3 s.
	LeaderGrace time.Duration
	// StallTimeout is how long a client may read nothing of a snapshot before the stream is ended.
	// Default 5 min.
	StallTimeout time.Duration
}

// Config configures Services. Store, Cluster and Random must be set.
type Config struct {
	Store   backend.Store
	Cluster backend.Cluster
	// Random is the source of lease ids that the client does not choose. Any goroutine may read it.
	Random io.Reader
	Limits
	// TemporaryDirectory is where a snapshot is written before it is sent, one at a time. It needs
	// space for the whole history, times maxSnapshots if that many snapshots are sent at once.
	// Default: that of the operating system.
	TemporaryDirectory string
	// Callers identifies the callers. Default authorize.Connections.
	Callers authorize.Callers
	// CertificateUsers makes the common name of a client's verified certificate its user, if the
	// client sends no token. Set it if servers require certificates of clients.
	CertificateUsers bool
	// Keyspaces gives access to the keyspaces whose data users guard as well. nil: there are none.
	Keyspaces users.Keyspaces
	// Passwords configures how passwords are hashed. The zero value has etcd's cost, and two at a
	// time.
	Passwords passwords.Config
	// Now is the clock by which tokens age. Default time.Now.
	Now func() time.Time
	// Logger gets refused calls and administration, with audit=true. Default: nothing is logged.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Services.Close. nil: there are none.
	Registerer prometheus.Registerer
	// Answers bounds the answers on their way to clients. nil: no bound.
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
