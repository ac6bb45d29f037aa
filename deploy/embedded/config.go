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
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemarkdb/tidemark/deploy/embedded/buildversion"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdkeyspaces"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
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

// ServerConfig configures a Server. Dir, Listen and Core are required. All other fields have
// defaults.
type ServerConfig struct {
	// Dir is the data directory. It belongs to one server, and is created if it does not exist.
	Dir string
	// Listen is the address for gRPC. Advertise is the address at which the other servers reach this
	// one. The default is Listen.
	Listen, Advertise string
	// Core lists addresses of members of the consistent core. They are seeds: one of them has to
	// answer. The members of a new core are 1, 3 or 5, and all of them must have the same list.
	Core []string
	// Roles are RoleCore and RoleNode. By default, a server has both roles if its address is in Core,
	// or if its directory is that of a member of the core. Any other server is a data node. A server
	// with RoleCore that is not in Core, or that finds an existing core, offers itself as a member.
	Roles []string
	// SmallTable is a number of partitions. If the table has at most that many, clients get the whole
	// partition table instead of the part for the keyspaces that they use. Zero means 1,000. A
	// negative number turns this off.
	SmallTable int
	// Region and Zone describe the location of the server. The replicas of a partition are spread over
	// regions and zones.
	Region, Zone string
	// Tags are further labels of the server, which placement rules can use: "disk=ssd", "gpu".
	Tags []string
	// HTTP is the address for metrics, health, profiles and the web console. If it is empty, there is
	// no HTTP server.
	HTTP string
	// HTTPDebugForAll opens the debug pages, such as profiles, to every client that reaches HTTP.
	// Otherwise they are for administrators. With TLS, administrators are the clients whose
	// certificates have a name (common name or DNS name) in TLSAdmins. Without TLS, they are the
	// clients on this machine.
	HTTPDebugForAll bool
	TLSAdmins       []string
	// ConsoleAdmin lets users of the web console, which is at HTTP, make changes. Otherwise the
	// console is read-only.
	ConsoleAdmin bool
	// TLSCert, TLSKey, TLSCA, TLSPeerCA are file names. Without them all connections are plain text.
	// TLSCA has the authorities for clients' certificates. TLSPeerCA has the authorities for servers'
	// certificates; the default is TLSCA. TLSPeerName is a DNS name that servers' certificates have.
	// See authn.TLSConfig.
	TLSCert, TLSKey, TLSCA, TLSPeerCA, TLSPeerName string
	// SecretFile has the cluster's secret, with which servers authenticate each other without TLS: at
	// least 32 hexadecimal digits. The default is the file cluster.secret in Dir. A server that founds
	// a cluster alone creates that file.
	SecretFile string
	// Insecure accepts every caller that claims to be a server. A server without Insecure, without TLS
	// that identifies servers, and without a secret listens on this machine only.
	Insecure bool

	// Version is the version that the server reports. The default is the version of the module
	// Tidemark in the program.
	Version string
	// Logger may be nil: then nothing is logged.
	Logger *slog.Logger
	// Registry receives the metrics, and HTTP shows its content. The default is a new registry.
	Registry *prometheus.Registry

	// MaxOffset is the maximum allowed difference between the clocks of the cluster. The default is
	// 250 ms.
	MaxOffset time.Duration
	// KernelBound uses the kernel's error bound of the clock while the kernel reports that the clock
	// is synchronised. All servers must have the same value.
	KernelBound bool
	// Tick is the interval of heartbeats. ElectionTicks is the shortest election timeout in ticks. The
	// defaults are 100 ms and 10.
	Tick          time.Duration
	ElectionTicks int
	// SleepAfter is the idle time after which a partition sleeps. A negative value means never. The
	// default is 1 s.
	SleepAfter time.Duration
	// MemoryLimit is the number of bytes of memory that the server may use. It determines the sizes of
	// caches, tables of recent writes, queues, requests and answers (package memory). A limit below
	// the server's needs is an error. The default is the limit of the process's control group, or the
	// memory of the machine, less a margin. That is all the memory that the process may use. So an
	// application with several servers, or with needs of its own, must set a limit for each server.
	MemoryLimit int64
	// CacheBytes is the size of the block cache of the data. The default depends on MemoryLimit.
	CacheBytes int64
	// MemTableBytes is the size of one table of recent writes in memory. There are at most a few such
	// tables. The default depends on MemoryLimit, and is at most 64 MiB.
	MemTableBytes uint64
	// LogMemTableBytes is the same size for the Raft logs, and also the approximate size of their
	// files. The default depends on MemoryLimit, and is at most 16 MiB.
	LogMemTableBytes uint64
	// MinFreeBytes is the free disk space below which writes are refused. The default is 64 MiB.
	MinFreeBytes uint64
	// RetainLogBytes is the amount of Raft log that a partition keeps for followers that lag. The
	// default is 8 MiB.
	RetainLogBytes int64
	// SnapshotBytesPerSecond limits the snapshots a node sends. Default 64 MiB.
	SnapshotBytesPerSecond int64
	// GCInterval is the interval at which old versions are searched for. The default is 1 min.
	GCInterval time.Duration
	// SlowThreshold is the duration from which on requests are kept in the slow log. 0 means the
	// default, 500 ms. If it is negative, no requests are kept.
	SlowThreshold time.Duration
	// Traces, if not nil, exports spans of requests (package tracing makes a provider). The exported
	// requests are those whose clients trace them, slow requests, requests with errors, and a share of
	// all requests, from 0 to 1, given by TraceRate. The provider must record every span. The caller
	// closes the provider after the server.
	Traces    trace.TracerProvider
	TraceRate float64

	// MaxStreams limits the calls and streams that a client has open on one gRPC connection. Further
	// calls wait in the client. A call that waits for a lock counts too. By default the memory for
	// clients' requests is the limit. Beyond 2,048 calls, each takes 16 KiB of that memory.
	MaxStreams uint32
	// MaxRequestBytes limits a request of the etcd API that changes data. MaxOperations limits the
	// comparisons, and the operations, of one transaction of the etcd API. The defaults are 1.5 MiB
	// and 128, as in etcd. The maximum of MaxRequestBytes is MostRequestBytes.
	MaxRequestBytes, MaxOperations int
	// CoreHistory is the time for which the coordination store keeps old revisions, so that they can
	// be read and watched. The default is 1 h. A negative value keeps them until a client compacts the
	// store.
	CoreHistory time.Duration
	// WatchProgressInterval is the interval of progress notifications for watches of the etcd API that
	// ask for them, while a watch gets no events. An interval may be up to a tenth longer. The default
	// is 10 min, as in etcd. The minimum is LeastWatchProgress.
	WatchProgressInterval time.Duration
	// CoreQuota limits the size in bytes of the coordination store, including its history. While this
	// member leads, it refuses puts that would exceed the limit, and raises etcd's alarm NOSPACE. The
	// default 0 means that only the disk limits the size.
	CoreQuota int64

	// Planner has the settings of placement that no operator of the cluster has set. The zero value
	// means the planner's defaults.
	Planner planner.Settings

	// The following fields replace the environment of the process, for tests and embedding.
	FS        vfs.FS
	Physical  hlc.Physical
	Monotonic hlc.Monotonic
	// AfterFunc calls functions after a time has passed, for parts that wait for clocks. The default
	// for a server on the system's network, whose Dial is nil, is timers that are as exact as the
	// system's timers (package timer). Otherwise the default is time.AfterFunc, which also works with
	// virtual time.
	AfterFunc func(d time.Duration, f func()) timer.Timer
	// Admission configures the queue of requests of the data node. The default for a server on the
	// system's network is a queue that checks whether goroutines wait for processors. Otherwise no
	// request waits by default.
	Admission   workqueue.Config
	NewListener func(addr string) (net.Listener, error)
	Dial        func(ctx context.Context, addr string) (net.Conn, error)
	// OpenTarget opens the target of a backup. If it is nil, the target is opened by its URL.
	OpenTarget func(ctx context.Context, url string) (target.Target, error)
	Random     func() uint64
	// Guard decides which rights clients have to the data of keyspaces. The default is the users and
	// roles of the cluster.
	Guard access.Guard
	// PeerFilter gets the messages that this server's Raft hosts send to others, and decides which are
	// sent, and when. The default is no filter.
	PeerFilter PeerFilter

	// awake is the monotonic clock with which the physical clock is compared. It may stop while the
	// machine is suspended.
	awake hlc.Monotonic
	// anyRole is set if no roles were given.
	anyRole bool
	// systemNetwork is set if Dial is given but uses the system's network.
	systemNetwork bool
	// withoutCoordination is for tests: the server's member of the core has no coordination store,
	// like a member of an older version.
	withoutCoordination bool
	// levels is for tests: the levels of formats and messages that the server's program supports, in
	// place of those of this release. The zero range is that of a version from before there were
	// levels. The default is release.Supported.
	levels *release.Range
	// olderCommands is for tests: the server does not report which commands of the core's stores it
	// knows, like a server of an older version.
	olderCommands bool
	// guardTimeout limits how long the enabling of authentication waits for other servers. The default
	// is etcdkeyspaces.DefaultTimeout.
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
	if c.AfterFunc == nil && c.onOwnNetwork() {
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

// clock makes a hybrid clock that ignores jumps of the physical clock. It is used by the data node
// and by the core's member. Nothing depends on the time of the member's clock (placement/server
// uses the clocks of the nodes). But the member has no lease after its clock has jumped, because
// the machine may have been suspended.
func (c *ServerConfig) clock() *hlc.Clock {
	return hlc.NewClock(hlc.NewSteady(c.Physical, c.awake, c.MaxOffset), c.bound())
}

func (c *ServerConfig) bound() hlc.BoundSource {
	if c.KernelBound {
		return hlc.KernelBound(c.MaxOffset)
	}
	return hlc.FixedBound(c.MaxOffset)
}

// foundsAlone reports whether the server is the only member of a new core, and so founds a cluster
// alone.
func (c *ServerConfig) foundsAlone() bool {
	return len(c.Core) == 1 && c.Core[0] == c.Advertise && c.has(RoleCore)
}

// onOwnNetwork reports whether the server uses the network of a test instead of the system's
// network.
func (c *ServerConfig) onOwnNetwork() bool { return c.Dial != nil && !c.systemNetwork }

// randomReader converts a source of numbers to a source of bytes.
type randomReader func() uint64

func (r randomReader) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], r())
		copy(b[i:], word[:])
	}
	return len(b), nil
}
