package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/serving"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/deploy/embedded/tracing"
	"github.com/tidemarkdb/tidemark/hlc"
)

// stopTimeout limits a clean stop; a restart repairs the rest.
const stopTimeout = 20 * time.Second

type startFlags struct {
	dir, listen, advertise, locality, http string
	httpDebug                              string
	consoleAdmin                           bool
	core, roles, tags                      []string
	tlsCert, tlsKey, tlsCA                 string
	tlsPeerCA, tlsPeerName, secretFile     string
	insecure                               bool
	tlsAdmins                              []string
	traceEndpoint                          string
	traceRate                              float64
	log                                    serving.Log

	// In all of these fields, zero means the default of package embedded.
	maxOffset, tick, sleepAfter, gcInterval time.Duration
	slowThreshold                           time.Duration
	electionTicks                           int
	kernelBound                             bool
	clockOffsetFile                         string
	memoryLimit, cache, memTable, logMemTable, minFree,
	retainLog, snapshotRate, maxRequest, coreQuota argument.Size
	coreHistory   time.Duration
	progress      time.Duration
	maxOperations int
	maxStreams    uint32
}

func (a *app) startCommand() *cobra.Command {
	var f startFlags
	cmd := &cobra.Command{
		Use:   "start --dir DIR --listen ADDRESS --core ADDRESS[,ADDRESS...]",
		Short: "Run one server of a cluster",
		Long: `Run one server of a cluster, until Ctrl-C or SIGTERM. SIGHUP makes it read its TLS
files again; it also reads them by itself when they have changed.

--core names members of the consistent core, of which one must answer. To found a cluster, start the
servers that form its core (1, 3 or 5), all with the same list, which names all of them. The core
forms by itself once they see each other. There is no other set-up step, and two clusters cannot
form by mistake. Later the list may name any of the present members of the core.

A server whose own address is in the list is a member of the core and, unless --roles says
otherwise, a data node as well; any other server is a data node. With --roles core,node a server
offers itself to an existing core: "tidemark core add" makes it a member.

Members of the core also answer the etcd v3 API, at the same address: to etcdctl and all clients of
etcd over gRPC, and as JSON over HTTP/1 ("tidemark help coord", docs/coordination.md).

The server prints one line when it is ready. Logs go to stderr: warnings and errors, unless
--log-level asks for more.`,
		Example: `  # three servers on one machine make a complete cluster; in each of three terminals:
  core=127.0.0.1:7501,127.0.0.1:7502,127.0.0.1:7503
  tidemark start --dir /tmp/t1 --listen 127.0.0.1:7501 --core $core
  tidemark start --dir /tmp/t2 --listen 127.0.0.1:7502 --core $core
  tidemark start --dir /tmp/t3 --listen 127.0.0.1:7503 --core $core

  # one more data node
  tidemark start --dir /tmp/t4 --listen 127.0.0.1:7504 --core $core

  # one that is to become a member of the core too
  tidemark start --dir /tmp/t5 --listen 127.0.0.1:7505 --core $core --roles core,node
  tidemark core add 127.0.0.1:7505`,
		Args: arguments("", 0, 0),
		RunE: a.verb(func(ctx context.Context, _ []string) error { return a.start(ctx, f) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dir, "dir", "",
		"directory of this server's data; made if it does not exist (required)")
	flags.StringVar(&f.listen, "listen", defaultEndpoint,
		"address to listen on for clients and other servers")
	flags.StringVar(&f.advertise, "advertise", "",
		"address by which others reach this server (default --listen)")
	flags.StringSliceVar(&f.core, "core", nil,
		"addresses of core servers; of all, and the same everywhere, when they found a "+
			"cluster (required)")
	flags.StringSliceVar(&f.roles, "roles", nil,
		"core, node or both (default: node, and core if --core lists this server or it is a member)")
	flags.StringVar(&f.locality, "locality", "", "where the server stands: region=NAME,zone=NAME")
	flags.StringSliceVar(&f.tags, "tags", nil,
		"further labels of the server, for placement rules: disk=ssd,gpu")
	flags.StringVar(&f.http, "http", "",
		"address for metrics, health, profiles and the web console (default: none)")
	flags.BoolVar(&f.consoleAdmin, "console-admin", false,
		"let users of the web console change things; otherwise the console shows only")
	flags.StringVar(&f.httpDebug, "http-debug", "local",
		"who may see profiles, debug pages and, without users, the console: local (this machine; "+
			"with TLS the clients of --tls-admin) or all")
	flags.StringSliceVar(&f.tlsAdmins, "tls-admin", nil,
		"names in the certificates of clients that may see profiles, debug pages and the console")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM file of this server's certificate")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM file of the key of --tls-cert")
	flags.StringVar(&f.tlsCA, "tls-ca", "",
		"PEM file of the authorities that sign the certificates of clients, and of servers unless "+
			"--tls-peer-ca is given")
	flags.StringVar(&f.tlsPeerCA, "tls-peer-ca", "",
		"PEM file of the authorities that sign the certificates of servers only")
	flags.StringVar(&f.tlsPeerName, "tls-peer-name", "",
		"DNS name that the certificates of servers have, and those of clients do not")
	flags.StringVar(&f.secretFile, "secret-file", "",
		"file with the secret by which servers know each other without TLS (default: cluster.secret "+
			"in --dir, which the only core server of a new cluster makes)")
	flags.BoolVar(&f.insecure, "insecure", false,
		"accept every caller that claims to be a server of the cluster")
	f.log.Register(cmd)
	f.registerTuning(cmd)
	_ = cmd.MarkFlagDirname("dir")
	return a.printing(cmd)
}

// registerTuning adds the flags that few servers need. The flags about time and elections must have
// the same values on all servers, which is up to the operator. The defaults are those of package
// embedded: a flag that is not given passes zero.
func (f *startFlags) registerTuning(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.maxOffset, "max-offset", 0,
		"how far the clocks of the cluster may be apart; the same on all servers (default 250ms)")
	flags.BoolVar(&f.kernelBound, "kernel-clock-bound", false,
		"believe the kernel's estimate of the clock's error while it says that the clock is "+
			"synchronised; the same on all servers")
	flags.StringVar(&f.clockOffsetFile, "clock-offset-file", "",
		"for fault tests: set this server's clock off by the duration that stands in the file, "+
			"read again and again")
	_ = flags.MarkHidden("clock-offset-file")
	flags.DurationVar(&f.tick, "tick", 0,
		"interval of Raft heartbeats; the same on all servers (default 100ms)")
	flags.IntVar(&f.electionTicks, "election-ticks", 0,
		"shortest election timeout, in ticks; the same on all servers (default 10)")
	flags.DurationVar(&f.sleepAfter, "sleep-after", 0,
		"how long a partition is idle before it costs nothing any more; negative is never (default 1s)")
	flags.DurationVar(&f.slowThreshold, "slow-threshold", 500*time.Millisecond,
		"how long a request takes to be kept for `tidemark slow`; 0 keeps none")
	flags.StringVar(&f.traceEndpoint, "trace-endpoint", "",
		"URL of a collector to which traces go by OTLP, such as http://localhost:4317 "+
			"(default: $OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, $OTEL_EXPORTER_OTLP_ENDPOINT, or none)")
	flags.Float64Var(&f.traceRate, "trace-rate", 0,
		"share of all requests that are traced, from 0 to 1, besides those that clients trace, and "+
			"that are slow or fail")
	flags.DurationVar(&f.gcInterval, "gc-interval", 0,
		"interval of searches for versions older than their window (default 1m)")
	flags.Var(&f.memoryLimit, "memory-limit",
		"memory that the server may use, by which caches, queues and requests are bounded (default: the "+
			"limit of the control group less an eighth, or half of the machine's memory)")
	flags.Var(&f.cache, "cache", "block cache of the data (default: by --memory-limit)")
	flags.Var(&f.memTable, "mem-table",
		"recent writes held in one table in memory, of which there are a few (default: by "+
			"--memory-limit, 64MiB at most)")
	flags.Var(&f.logMemTable, "log-mem-table",
		"the same for the Raft logs (default: by --memory-limit, 16MiB at most)")
	flags.Var(&f.minFree, "min-free",
		"free space on the disk that is kept, beside what is in memory (default 64MiB)")
	flags.Var(&f.retainLog, "retain-log",
		"Raft log that each partition keeps for followers that lag (default 8MiB)")
	flags.Var(&f.snapshotRate, "snapshot-rate",
		"bytes a second of the snapshots that the server sends (default 64MiB)")
	flags.Var(&f.maxRequest, "max-request-bytes",
		"largest request of the etcd API that changes something (default 1.5MiB)")
	flags.IntVar(&f.maxOperations, "max-txn-ops", 0,
		"most operations of a transaction of the etcd API (default 128)")
	flags.DurationVar(&f.coreHistory, "core-history", 0,
		"for how long changes of the coordination store can be read and watched; negative: until they "+
			"are compacted (default 1h)")
	flags.Var(&f.coreQuota, "core-quota",
		"size of the coordination store above which it takes no more keys, and raises etcd's alarm "+
			"NOSPACE (default: what the disk has)")
	flags.DurationVar(&f.progress, "watch-progress-interval", 0,
		"interval of progress notifications, for watches of the etcd API that ask for them, while there "+
			"are no events; at least 100ms (default 10m)")
	flags.Uint32Var(&f.maxStreams, "max-concurrent-streams", 0,
		"most calls and streams that a client has open on one gRPC connection; more wait (default: as "+
			"--memory-limit has room for)")
}

// check validates the flags before anything is opened.
func (f *startFlags) check() error {
	switch {
	case f.dir == "":
		return exit.Usagef("give --dir, the directory of this server's data")
	case len(f.core) == 0:
		return exit.Usagef("give --core, the addresses of core servers: of all that found a " +
			"cluster, or of some that are there; for a cluster of one server, its own address")
	}
	if err := argument.CheckAddress("--listen", f.listen, true); err != nil {
		return err
	}
	if f.advertise == "" {
		host, _, _ := net.SplitHostPort(f.listen)
		if argument.Unspecified(host) {
			return exit.Usagef("--listen %s: others cannot call that address; give --advertise, "+
				"the one by which they reach this server", f.listen)
		}
		f.advertise = f.listen
	}
	if err := argument.CheckAddress("--advertise", f.advertise, false); err != nil {
		return err
	}
	for i, member := range f.core {
		if err := argument.CheckAddress("--core", member, false); err != nil {
			return err
		}
		if slices.Contains(f.core[:i], member) {
			return exit.Usagef("--core: %s is listed twice", member)
		}
	}
	if f.http != "" {
		if err := argument.CheckAddress("--http", f.http, true); err != nil {
			return err
		}
	}
	if f.consoleAdmin && f.http == "" {
		return exit.Usagef("--console-admin is about the console at --http: give an address")
	}
	if f.httpDebug != "local" && f.httpDebug != "all" {
		return exit.Usagef("--http-debug %q: use local or all", f.httpDebug)
	}
	if slices.Equal(f.roles, []string{"both"}) {
		f.roles = []string{"core", "node"}
	}
	for _, role := range f.roles {
		if role != "core" && role != "node" {
			return exit.Usagef("--roles: %q is not a role; the roles are core and node", role)
		}
	}
	switch {
	case f.slowThreshold < 0:
		return exit.Usagef("--slow-threshold cannot be negative; 0 keeps no requests")
	case !(f.traceRate >= 0 && f.traceRate <= 1):
		return exit.Usagef("--trace-rate %v: it is from 0 to 1", f.traceRate)
	case f.maxOffset < 0, f.tick < 0, f.gcInterval < 0:
		return exit.Usagef("--max-offset, --tick and --gc-interval cannot be negative")
	case f.electionTicks < 0 || f.electionTicks == 1 || f.electionTicks == 2:
		return exit.Usagef("--election-ticks %d: it is at least 3", f.electionTicks)
	case f.memTable > 0 && f.memTable < 1<<20, f.logMemTable > 0 && f.logMemTable < 1<<20:
		return exit.Usagef("--mem-table and --log-mem-table are at least 1MiB")
	case f.progress != 0 && f.progress < embedded.LeastWatchProgress:
		return exit.Usagef("--watch-progress-interval %v: it is at least %v", f.progress,
			embedded.LeastWatchProgress)
	case f.maxOperations < 0:
		return exit.Usagef("--max-txn-ops cannot be negative")
	case f.maxRequest > embedded.MostRequestBytes:
		return exit.Usagef("--max-request-bytes is at most %d", embedded.MostRequestBytes)
	}
	if err := embedded.CheckElections(f.tick, f.electionTicks, f.maxOffset); err != nil {
		return exit.Usagef("--tick, --election-ticks and --max-offset: %w", err)
	}
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return exit.Usagef("--tls-cert and --tls-key belong together: give both or neither")
	}
	if f.tlsCA != "" && f.tlsCert == "" {
		return exit.Usagef("--tls-ca without --tls-cert and --tls-key would do nothing: a server " +
			"with TLS needs a certificate")
	}
	if (f.tlsPeerCA != "" || f.tlsPeerName != "") && f.tlsCert == "" {
		return exit.Usagef("--tls-peer-ca and --tls-peer-name say which certificates are servers': " +
			"they need --tls-cert and --tls-key")
	}
	if len(f.tlsAdmins) > 0 && f.tlsCA == "" {
		return exit.Usagef("--tls-admin names certificates of clients: it needs --tls-ca, which " +
			"signs them")
	}
	if f.tlsPeerName != "" && f.tlsCA == "" && f.tlsPeerCA == "" {
		return exit.Usagef("--tls-peer-name needs --tls-ca or --tls-peer-ca: without them servers " +
			"show no certificates to each other")
	}
	if f.secretFile != "" && f.tlsCert != "" {
		return exit.Usagef("--secret-file is for servers without TLS: with it they know each other " +
			"by their certificates")
	}
	return nil
}

// startNotice is how often a server that is not ready yet logs what it waits for, if that has
// changed.
const startNotice = 3 * time.Second

func (a *app) start(ctx context.Context, f startFlags) error {
	given := f.advertise != ""
	if err := f.check(); err != nil {
		return err
	}
	if err := f.nameAsListed(ctx, given); err != nil {
		return err
	}
	region, zone, err := argument.ParseLocality(f.locality)
	if err != nil {
		return err
	}
	logger, err := f.log.Logger(a.err)
	if err != nil {
		return err
	}
	limit := embedded.MemoryLimit(int64(f.memoryLimit))
	memory.TuneCollector(memory.Collector{GOGC: os.Getenv("GOGC"),
		GOMEMLIMIT: os.Getenv("GOMEMLIMIT"), Limit: limit,
		CoreOnly: slices.Equal(f.roles, []string{embedded.RoleCore}), Cache: int64(f.cache),
		MemTable: int64(f.memTable), LogMemTable: int64(f.logMemTable)})
	var clock hlc.Physical // nil means the system's clock
	if f.clockOffsetFile != "" {
		offset := serving.NewOffsetClock(f.clockOffsetFile, logger)
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		var follower sync.WaitGroup
		follower.Go(func() { offset.Follow(following, logger) })
		defer follower.Wait()
		defer stop()
		clock = offset
	}
	traces, err := tracing.New(ctx, tracing.Config{Endpoint: f.traceEndpoint, Getenv: a.getenv,
		Server: f.advertise, Version: buildVersion()})
	if err != nil {
		return exit.Usagef("--trace-endpoint: %w", err)
	}
	defer traces.Close()
	server, err := embedded.StartServer(ctx, embedded.ServerConfig{
		Traces: traces.Tracers(), TraceRate: f.traceRate,
		Dir: f.dir, Listen: f.listen, Advertise: f.advertise, Core: f.core, Roles: f.roles,
		Region: region, Zone: zone, Tags: f.tags,
		HTTP: f.http, HTTPDebugForAll: f.httpDebug == "all", TLSAdmins: f.tlsAdmins,
		ConsoleAdmin: f.consoleAdmin,
		TLSCert:      f.tlsCert, TLSKey: f.tlsKey,
		TLSCA: f.tlsCA, TLSPeerCA: f.tlsPeerCA, TLSPeerName: f.tlsPeerName, SecretFile: f.secretFile,
		Insecure: f.insecure, Logger: logger, Version: buildVersion(),
		MaxOffset: f.maxOffset, KernelBound: f.kernelBound, Tick: f.tick,
		ElectionTicks: f.electionTicks, SleepAfter: f.sleepAfter,
		MemoryLimit: int64(f.memoryLimit), CacheBytes: int64(f.cache), MemTableBytes: uint64(f.memTable),
		MinFreeBytes: uint64(f.minFree), RetainLogBytes: int64(f.retainLog),
		LogMemTableBytes: uint64(f.logMemTable), SnapshotBytesPerSecond: int64(f.snapshotRate),
		GCInterval: f.gcInterval, SlowThreshold: cmp.Or(f.slowThreshold, -1),
		CoreHistory: f.coreHistory, CoreQuota: int64(f.coreQuota), MaxStreams: f.maxStreams,
		WatchProgressInterval: f.progress,
		MaxRequestBytes:       int(f.maxRequest), MaxOperations: f.maxOperations,
		Physical: clock,
	})
	if err != nil {
		return err
	}
	ready := make(chan error, 1)
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	go func() { ready <- server.WaitReady(waiting) }()
	notice := time.NewTicker(startNotice)
	defer notice.Stop()
	said := ""
	var hangups <-chan os.Signal
	if a.hangups != nil {
		var stop func()
		hangups, stop = a.hangups()
		defer stop()
	}
	for {
		select {
		case <-hangups:
			if err := server.ReloadCertificates(); err != nil {
				logger.Error("the TLS files cannot be used; those read before stay in use", "error", err)
			}
		case <-notice.C:
			if ok, reason := server.Ready(); !ok && ready != nil && reason != said {
				fmt.Fprintf(a.err, "tidemark: not ready yet: %s\n", exit.Message(errors.New(reason)))
				said = reason
			}
		case err := <-ready:
			if err == nil {
				a.sayReady(f)
			}
			ready = nil // printed once; the other cases report an error of ctx or the server
		case <-server.Done():
			return server.Err()
		case <-ctx.Done():
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			if err := server.Stop(closing); err != nil {
				return fmt.Errorf("the server did not stop cleanly; its data are safe: %w", err)
			}
			return nil
		}
	}
}

// lookUpTimeout limits the time for looking up the hosts of --core.
const lookUpTimeout = 2 * time.Second

// nameAsListed makes the server use the address that --core has for it, because the other servers
// know a founding member only by that address. given: --advertise was given.
func (f *startFlags) nameAsListed(ctx context.Context, given bool) error {
	if slices.Contains(f.core, f.advertise) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	listed := argument.ListedAs(ctx, net.DefaultResolver, f.advertise, f.core)
	switch {
	case listed == "":
		return nil
	case given:
		return exit.Usagef("--advertise %s is %s of --core, in other words: write both the same way",
			f.advertise, listed)
	}
	f.advertise = listed
	return nil
}

// sayReady prints the line that says that the server serves requests.
func (a *app) sayReady(f startFlags) {
	if a.format == output.Table {
		fmt.Fprintf(a.out, "tidemark: ready on %s\n", f.advertise)
		return
	}
	list := a.list(output.Column{Name: "ready"}, output.Column{Name: "address"},
		output.Column{Name: "http"})
	list.Row(true, f.advertise, orNone(f.http))
	_ = list.Flush() // a server does not end if its output is not read
}
