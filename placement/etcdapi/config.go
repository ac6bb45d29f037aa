package etcdapi

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/passwords"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Store is what the services need of the store; *store.Store has it. Its errors are the store's.
type Store interface {
	// Execute does a command, at most once, on any member. It waits for a leader.
	Execute(context.Context, *storepb.Command) (*storepb.Result, error)
	// RenewAll gives leases their full terms, and returns these, 0 for one that does not exist, and
	// TimeToLive describes one, on any member.
	RenewAll(ctx context.Context, leases []int64) ([]time.Duration, error)
	TimeToLive(ctx context.Context, lease int64) (store.LeaseInfo, error)
	// LeasesAs lists the leases that exist, as far as this member knows, and that a client may see,
	// by when they run out. AttachedKeys are the keys of one.
	LeasesAs(context.Context, *storepb.AuthInfo) ([]int64, error)
	AttachedKeys(lease int64) ([][]byte, error)
	// Authority is what this member knows of users and roles.
	Authority() *authority.State

	// Read waits for a leader, and returns once this member has everything that was acknowledged
	// before the call.
	Read(context.Context) (*store.View, error)
	// ReadTxnAs does a transaction that writes nothing on what this member has, for a client. release
	// is called when the answer is needed no more.
	ReadTxnAs(context.Context, *storepb.AuthInfo, *storepb.Txn) (
		result *storepb.Result, release func(), err error)
	// NewWatchStream is for what waits for changes on this member.
	NewWatchStream() (*watch.Stream, error)
	Revision() uint64
	Compacted() uint64
	// AwaitCompaction waits until this member has removed what compactions have made unreadable.
	AwaitCompaction(context.Context) error

	Leadership() (store.Leadership, <-chan struct{})
	AppliedIndex() uint64
	// Bytes is the size of the store as its quota counts it, DiskBytes about what it takes on the
	// disk.
	Bytes() uint64
	DiskBytes() (uint64, error)
	// Alarms are those that are raised, as far as this member knows.
	Alarms() []*storepb.Alarm
	Hash(ctx context.Context, revision uint64) (store.Hash, error)
	HashAll(context.Context) (sum uint32, revision uint64, err error)
	Export() (*store.Export, error)

	// ImportState says how far the latest import is, on any member. Importing is store.ErrImporting
	// while one is under way, as far as this member knows.
	ImportState(context.Context) (store.ImportState, error)
	Importing() error
}

// Cluster is what the services need of the cluster around the store. Its methods may be called from
// any goroutine. A method that returns an error of gRPC (those of rpctypes, for example) has it
// handed to the client as it is; errors.ErrUnsupported becomes Unimplemented.
type Cluster interface {
	// ClusterID and MemberID are what headers carry. MemberID is 0 while it is not known yet.
	ClusterID() uint64
	MemberID() uint64
	// MemberOf is the id, as in Members, of the member that has a replica of the store; 0 if none
	// has.
	MemberOf(keys.ReplicaID) uint64
	// Learner says whether this member has no vote.
	Learner() bool
	// Members lists the members as this member knows them, or if linearizable, with every change that
	// was answered anywhere before the call.
	Members(ctx context.Context, linearizable bool) ([]Member, error)

	// Add adds a member of which these are the peer URLs, and returns it. Remove, Update and Promote
	// name one by its id. All return the members after the change. The outgoing metadata of their
	// contexts name the client's user: another member that does the change judges the user again.
	Add(ctx context.Context, peerURLs []string, learner bool) (Member, []Member, error)
	Remove(ctx context.Context, id uint64) ([]Member, error)
	Update(ctx context.Context, id uint64, peerURLs []string) ([]Member, error)
	Promote(ctx context.Context, id uint64) ([]Member, error)
	// MoveLeader is called on the leader, and returns when the member of that id leads.
	MoveLeader(ctx context.Context, id uint64) error
}

// Member is one member of the cluster.
type Member struct {
	ID uint64
	// Name is empty for a member that has not started yet.
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}

const (
	// DefaultMaxRequestBytes and DefaultMaxOperations are etcd's limits.
	DefaultMaxRequestBytes = 1536 << 10
	DefaultMaxOperations   = 128
	// RequestOverheadBytes is by how much a gRPC message may be larger than a request.
	RequestOverheadBytes = 512 << 10
	// DefaultVersion is what clients are told that they talk to.
	DefaultVersion = "3.6.6"
)

// Config is what Services are made of. Store, Cluster and Random must be set.
type Config struct {
	Store   Store
	Cluster Cluster
	// Random is where lease ids come from that the client does not choose. Any goroutine reads it.
	Random io.Reader

	// MaxRequestBytes bounds a request that goes through the log. The gRPC server has to accept
	// messages of RequestOverheadBytes more. Default DefaultMaxRequestBytes; more than
	// store.MaxCommandBytes has no effect.
	MaxRequestBytes int
	// MaxOperations is how many comparisons, and how many operations on either branch, a transaction
	// may have; nested ones have what is left. Default DefaultMaxOperations.
	MaxOperations int
	// Quota is the size of the store that Status tells as its quota; 0: there is none.
	Quota int64
	// GiveBack has this member's disk take back what was deleted and compacted. nil: Defragment does
	// nothing.
	GiveBack func(context.Context) error
	// RequestTimeout bounds how long a call waits for the members. Default 7 s, as in etcd.
	RequestTimeout time.Duration
	// LeaderGrace is how long there may be no leader before streams end whose clients demand one.
	// Default 3 s.
	LeaderGrace time.Duration
	// MinLease is the shortest term of a lease; one for which less is asked gets that. It is a
	// multiple of a second. Default 2 s, as in etcd with its default election timeout.
	MinLease time.Duration
	// TemporaryDirectory is where a snapshot is written before it is sent, one at a time. It needs
	// room for the whole history, four times if as many snapshots are sent as may be. Default: that
	// of the operating system.
	TemporaryDirectory string
	// StallTimeout is for how long a client may read nothing of a snapshot that it is sent until the
	// stream is ended. Default 5 min.
	StallTimeout time.Duration
	// CertificateUsers takes the common name of a client's verified certificate for its user, if the
	// client comes without a token. It is for servers that ask clients for certificates.
	CertificateUsers bool
	// PassedOn says of a call that a server passes on for a client what the common name of the
	// client's certificate is, "" for none; false: the client itself calls. Default: no call is
	// passed on.
	PassedOn func(context.Context) (commonName string, ok bool)
	// Keyspaces are those whose data users guard as well. nil: there are none.
	Keyspaces Keyspaces
	// TLS is the TLS connection that a call came on; nil if there is none. Default: what gRPC's own
	// credentials for TLS say.
	TLS func(context.Context) *tls.ConnectionState
	// Party names the clients with which that of a call shares what it has of the server's time:
	// passwords are hashed and commands are done in turns by party. Default: the host that the call
	// came from.
	Party func(context.Context) string
	// TokenTTL is how long a token is valid at a member that does not see it used. Default 5 min, as
	// in etcd.
	TokenTTL time.Duration
	// Secrets is where the keys come from that sign tokens. Any goroutine reads it. Default
	// crypto/rand.
	Secrets io.Reader
	// Passwords says how they are hashed. The zero value has etcd's cost, and two at a time.
	Passwords passwords.Config
	// Now is the time by which tokens age. Default time.Now.
	Now func() time.Time
	// Clocks are what the clocks of the members with a vote show now, in Unix nanoseconds, of those
	// that were heard lately, and how many members with a vote there are. The caller may change the
	// slice. Default: the clock of this machine, and one.
	Clocks func() (clocks []int64, members int)
	// Logger is told what is refused and what is administered, with audit=true. Default: nothing is
	// logged.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Services.Close. nil: none does.
	Registerer prometheus.Registerer
	// Answers bounds the answers that are on their way to clients. nil: nothing does.
	Answers Answers
	// Version is the etcd version that clients are told, "major.minor.patch". Default
	// DefaultVersion.
	Version string
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
	if c.RequestTimeout <= 0 {
		c.RequestTimeout = 7 * time.Second
	}
	if c.LeaderGrace <= 0 {
		c.LeaderGrace = 3 * time.Second
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 5 * time.Minute
	}
	if c.MinLease < time.Second {
		c.MinLease = 2 * time.Second
	}
	c.MinLease = c.MinLease.Round(time.Second)
	if c.Version == "" {
		c.Version = DefaultVersion
	}
	if c.TLS == nil {
		c.TLS = tlsOf
	}
	if c.Party == nil {
		c.Party = hostOf
	}
	if c.PassedOn == nil {
		c.PassedOn = func(context.Context) (string, bool) { return "", false }
	}
	if c.TokenTTL <= 0 {
		c.TokenTTL = 5 * time.Minute
	}
	if c.Secrets == nil {
		c.Secrets = rand.Reader
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Clocks == nil {
		c.Clocks = ownClock
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
