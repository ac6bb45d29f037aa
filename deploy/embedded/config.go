package embedded

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/buildversion"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdkeyspaces"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// The roles of a server.
const (
	RoleCore = datadir.Core
	RoleNode = datadir.Node
)

// ServerConfig configures a Server. Dir, Listen and Core are required; everything else has a
// default.
type ServerConfig struct {
	// Dir is the data directory. It belongs to one server; it is made if it is not there.
	Dir string
	// Listen is the address for gRPC. Advertise is how the others reach it; default: Listen.
	Listen, Advertise string
	// Core lists addresses of members of the consistent core: seeds, of which one has to answer. The
	// members of a core that is to be formed are 1, 3 or 5, and all have the same list.
	Core []string
	// Roles are RoleCore and RoleNode. By default a server whose address is in Core, or whose
	// directory is a member of the core, is both, any other a data node. One with RoleCore that is
	// not in Core, or finds a core that is there already, offers itself as a member.
	Roles []string
	// SmallTable is up to how many partitions clients are sent the whole partition table, rather than
	// that of the keyspaces that they use; default 1,000, negative: never.
	SmallTable int
	// Region and Zone say where the server is; replicas of a partition are spread over them.
	Region, Zone string
	// Tags are further labels of the server, which placement rules can name: "disk=ssd", "gpu".
	Tags []string
	// HTTP is the address for metrics, health and profiles; empty: none.
	HTTP string
	// HTTPDebugForAll opens the debug pages, profiles for one, to every client that reaches HTTP;
	// else they are for administrators: with TLS the clients whose certificates have a name (common
	// name or DNS name) of TLSAdmins, without TLS those on this machine.
	HTTPDebugForAll bool
	TLSAdmins       []string
	// TLSCert, TLSKey, TLSCA and TLSPeerCA are files; without them everything is in plain text.
	// TLSCA are the authorities of clients' certificates, TLSPeerCA those of servers', by default the
	// same. TLSPeerName is a DNS name that servers' certificates have. See authn.TLSConfig.
	TLSCert, TLSKey, TLSCA, TLSPeerCA, TLSPeerName string
	// SecretFile holds the cluster's secret, by which servers know each other without TLS: at least
	// 32 hexadecimal digits. Default: the file cluster.secret in Dir, which the server that founds a
	// cluster by itself makes.
	SecretFile string
	// Insecure takes every caller that says so for a server. Without it, TLS that identifies servers,
	// or a secret, a server listens on this machine only.
	Insecure bool

	// Version is what the server calls its version. Default: that of the module Tidemark in the
	// program.
	Version string
	// Logger may be nil for none.
	Logger *slog.Logger
	// Registry takes the metrics, and is what HTTP shows. Default: a new one.
	Registry *prometheus.Registry

	// MaxOffset bounds how far the clocks of the cluster may be apart. Default 250 ms.
	MaxOffset time.Duration
	// KernelBound takes the clock's bound from the kernel while that says it is synchronised. The
	// same on all servers.
	KernelBound bool
	// Tick is the interval of heartbeats, ElectionTicks the shortest election timeout in ticks.
	// Defaults 100 ms and 10.
	Tick          time.Duration
	ElectionTicks int
	// SleepAfter is how long a partition is idle before it sleeps; negative: never. Default 1 s.
	SleepAfter time.Duration
	// MemoryLimit is how many bytes of memory the server may use. Caches, tables of recent writes,
	// queues, requests and answers are as large as it allows (package memory); a limit below what the
	// server needs is an error. Default: the limit of the process's control group, or the memory of
	// the machine, less a margin, which is all that the process may use: an application with
	// several servers, or with needs of its own, sets a limit for each.
	MemoryLimit int64
	// CacheBytes is the block cache of the data. Default: by MemoryLimit.
	CacheBytes int64
	// MemTableBytes is the size of one table of recent writes in memory; there are at most a few.
	// Default: by MemoryLimit, 64 MiB at most.
	MemTableBytes uint64
	// LogMemTableBytes is the same for the Raft logs, and about the size of one of their files.
	// Default: by MemoryLimit, 16 MiB at most.
	LogMemTableBytes uint64
	// MinFreeBytes is the free disk space below which writes are refused. Default 64 MiB; negative
	// values are not possible.
	MinFreeBytes uint64
	// RetainLogBytes is how much Raft log a partition keeps for followers that lag. Default 8 MiB.
	RetainLogBytes int64
	// SnapshotBytesPerSecond limits the snapshots a node sends. Default 64 MiB.
	SnapshotBytesPerSecond int64
	// GCInterval is how often old versions are looked for. Default 1 min.
	GCInterval time.Duration

	// MaxStreams bounds the calls and streams that a client has open on one gRPC connection; more
	// wait in the client, which hears nothing. A call that waits for a lock counts too. Default: the
	// memory for clients' requests bounds them; beyond 2,048 each takes 16 KiB of that.
	MaxStreams uint32
	// MaxRequestBytes bounds a request of the etcd API that changes something, MaxOperations the
	// comparisons, and the operations, of one transaction of it. Defaults 1.5 MiB and 128, as in
	// etcd; a request has at most MostRequestBytes.
	MaxRequestBytes, MaxOperations int
	// CoreHistory is for how long the coordination store keeps what was changed, so that it can be
	// read and watched from there. Default 1 h; negative: until a client compacts it.
	CoreHistory time.Duration
	// WatchProgressInterval is how often a watch of the etcd API that asks to be notified of its
	// progress is, while it gets no events, and up to a tenth more. Default 10 min, as in etcd; at
	// least LeastWatchProgress.
	WatchProgressInterval time.Duration
	// CoreQuota is the size in bytes of the coordination store, with its history, above which this
	// member lets nothing be put while it leads: it refuses what would cross it, and raises etcd's
	// alarm NOSPACE. Default 0: only the room on the disk counts.
	CoreQuota int64

	// Planner bounds what placement does, where no operator of the cluster has set it. Zero: its
	// defaults.
	Planner planner.Settings

	// For tests and embedding: where the outside world comes in.
	FS        vfs.FS
	Physical  hlc.Physical
	Monotonic hlc.Monotonic
	// AfterFunc calls functions when a time has passed, for what waits for clocks. Default: timers
	// as exact as the system's are (package alarm) for a server on the system's network, whose Dial
	// is nil; else time.AfterFunc, which knows virtual time too.
	AfterFunc   func(d time.Duration, f func()) timer.Timer
	NewListener func(addr string) (net.Listener, error)
	Dial        func(ctx context.Context, addr string) (net.Conn, error)
	// OpenTarget opens the target of a backup; nil: by its URL.
	OpenTarget func(ctx context.Context, url string) (target.Target, error)
	Random     func() uint64
	// Guard is asked what clients may do to the data of keyspaces. Default: the users and roles of
	// the cluster.
	Guard access.Guard
	// PeerFilter sees what this server's Raft hosts send to others, and decides what becomes of it.
	// Default: none.
	PeerFilter PeerFilter

	// awake is the monotonic clock that the physical one is compared with. It may stand still with
	// the machine.
	awake hlc.Monotonic
	// anyRole: no roles were given.
	anyRole bool
	// withoutCoordination is for tests: the server's member of the core knows of no coordination
	// store, as that of an older version.
	withoutCoordination bool
	// levels is for tests: the levels of formats and messages that the server's program supports, as
	// that of another release; the zero range is that of a version from before there were levels.
	// Default: release.Supported.
	levels *release.Range
	// olderCommands is for tests: the server does not say which commands of the core's stores it
	// knows, as that of an older version.
	olderCommands bool
	// guardTimeout bounds how long enabling authentication waits for other servers. Default:
	// etcdkeyspaces.DefaultTimeout.
	guardTimeout time.Duration
}

func (c *ServerConfig) ensureDefaults() error {
	if c.Dir == "" || c.Listen == "" || len(c.Core) == 0 {
		return errors.New("a server needs a directory, an address to listen on, and the list of " +
			"the core's addresses")
	}
	if c.Advertise == "" {
		c.Advertise = c.Listen
	}
	sorted := slices.Sorted(slices.Values(c.Core))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return fmt.Errorf("the core's list names %s twice", sorted[i])
		}
	}
	listed := slices.Contains(c.Core, c.Advertise)
	if len(c.Roles) == 0 {
		c.anyRole = true
		c.Roles = []string{RoleNode}
		if listed {
			c.Roles = append(c.Roles, RoleCore)
		}
	}
	for _, r := range c.Roles {
		if r != RoleCore && r != RoleNode {
			return fmt.Errorf("unknown role %q; the roles are %s and %s", r, RoleCore, RoleNode)
		}
	}
	if c.Version == "" {
		c.Version = buildversion.Read().Version
	}
	if c.levels == nil {
		c.levels = new(release.Supported())
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	if c.MaxOffset <= 0 {
		c.MaxOffset = defaultMaxOffset
	}
	if c.CoreHistory == 0 {
		c.CoreHistory = time.Hour
	}
	if c.MinFreeBytes == 0 {
		c.MinFreeBytes = 64 << 20
	}
	if c.SnapshotBytesPerSecond <= 0 {
		c.SnapshotBytesPerSecond = 64 << 20
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Physical == nil {
		c.Physical = hlc.System()
	}
	if c.Monotonic == nil {
		c.Monotonic, c.awake = hlc.SystemMonotonic(), hlc.AwakeMonotonic()
	} else {
		c.awake = c.Monotonic
	}
	if c.AfterFunc == nil && c.Dial != nil {
		c.AfterFunc = timer.Plain
	}
	if c.NewListener == nil {
		c.NewListener = func(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }
	}
	if c.guardTimeout <= 0 {
		c.guardTimeout = etcdkeyspaces.DefaultTimeout
	}
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	return nil
}

func (c *ServerConfig) has(role string) bool { return slices.Contains(c.Roles, role) }

// clock makes a hybrid clock that leaves the jumps of the physical one out: that of the data node,
// or of the core's member. On the time that the latter shows nothing depends (placement/server goes
// by what the nodes' clocks show), but it has no lease if it has jumped, since then the machine may
// have been suspended.
func (c *ServerConfig) clock() *hlc.Clock {
	return hlc.NewClock(hlc.NewSteady(c.Physical, c.awake, c.MaxOffset), c.bound())
}

func (c *ServerConfig) bound() hlc.BoundSource {
	if c.KernelBound {
		return hlc.KernelBound(c.MaxOffset)
	}
	return hlc.FixedBound(c.MaxOffset)
}

// foundsAlone says that the server is all of the core, and so founds a cluster by itself.
func (c *ServerConfig) foundsAlone() bool {
	return len(c.Core) == 1 && c.Core[0] == c.Advertise && c.has(RoleCore)
}

// onOwnNetwork says that the server is not on the system's network, but on a test's.
func (c *ServerConfig) onOwnNetwork() bool { return c.Dial != nil }

// randomReader makes a byte source of a source of numbers.
type randomReader func() uint64

func (r randomReader) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], r())
		copy(b[i:], word[:])
	}
	return len(b), nil
}
