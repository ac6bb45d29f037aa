package examine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
	"github.com/tidemarkdb/tidemark/deploy/embedded/recentlog"
	"github.com/tidemarkdb/tidemark/rpc/diagnosispb"
)

const (
	// maxCalls limits the calls that a server works on at a time. Other calls wait.
	maxCalls = 2
	// maxOthers limits the servers that one call pings. parallelPings limits the servers that are
	// pinged at a time. pings is the number of pings to each, after a first ping that opens the
	// connection.
	maxOthers     = 128
	parallelPings = 32
	pings         = 5
	// pingTimeout bounds all pings of one server.
	pingTimeout = 2 * time.Second
)

// Config configures an Examiner. All fields must be set.
type Config struct {
	// Address is the address at which others reach the server.
	Address string
	// About fills in what the server's parts know: everything except the machine, the links and the
	// certificates.
	About func(*diagnosispb.Examination)
	// Cluster returns the number of the cluster, or 0 if the server belongs to no cluster yet.
	Cluster func() uint64
	// Known reports whether an address belongs to a server of the cluster.
	Known func(ctx context.Context, address string) bool
	// Conn connects to another server, with the proof of a server.
	Conn func(address string) (*grpc.ClientConn, error)
	// Wall is the machine's clock, in nanoseconds since 1970.
	Wall func() int64
	// MemoryLimit is the server's limit in bytes.
	MemoryLimit int64
	// Certificates are the files of certificates.
	Certificates []CertificateFile
	// Metrics and Log are collected.
	Metrics prometheus.Gatherer
	Log     *recentlog.Lines
}

// Examiner implements diagnosispb.DiagnosisServer. Its methods may be called from any goroutine.
type Examiner struct {
	diagnosispb.UnimplementedDiagnosisServer
	config  Config
	system  system
	started time.Time
	// calls has a token for each call in progress.
	calls chan struct{}
}

// New makes an Examiner.
func New(config Config) *Examiner {
	return &Examiner{config: config, system: system{os.DirFS("/")}, started: time.Now(),
		calls: make(chan struct{}, maxCalls)}
}

// begin waits until the server may work on one more call.
func (e *Examiner) begin(ctx context.Context) (end func(), err error) {
	select {
	case e.calls <- struct{}{}:
		return func() { <-e.calls }, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

// meant refuses calls meant for another server. Cluster 0 is not compared, because a server that
// waits to join a cluster is examined, too.
func (e *Examiner) meant(cluster uint64, server string) error {
	own := e.config.Cluster()
	switch {
	case server != "" && server != e.config.Address:
		return status.Errorf(codes.FailedPrecondition, "this server is at %s, and not at %s",
			e.config.Address, server)
	case cluster != 0 && own != 0 && own != cluster:
		return status.Errorf(codes.FailedPrecondition, "this server is in the cluster %016x, and not "+
			"in %016x", own, cluster)
	}
	return nil
}

// Examine implements diagnosispb.DiagnosisServer.
func (e *Examiner) Examine(
	ctx context.Context, r *diagnosispb.ExamineRequest,
) (*diagnosispb.Examination, error) {
	if err := e.meant(r.GetCluster(), r.GetServer()); err != nil {
		return nil, err
	}
	end, err := e.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	x := &diagnosispb.Examination{Address: e.config.Address, Cluster: e.config.Cluster(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH + ", " + runtime.Version(),
		StartedUnix: e.started.Unix(), Processor: &diagnosispb.Processor{},
		Memory: &diagnosispb.Memory{Limit: uint64(max(0, e.config.MemoryLimit)),
			GroupLimit: uint64(memory.GroupLimit())},
		Files: e.system.files(), Clock: &diagnosispb.Clock{UnixNanos: uint64(max(0, e.config.Wall()))}}
	e.system.processor(x.Processor)
	e.system.memory(x.Memory)
	e.config.About(x)
	for _, f := range e.config.Certificates {
		x.Certificates = append(x.Certificates, f.read()...)
	}
	x.Links = e.links(ctx, r.GetOthers())
	return x, nil
}

// links pings other servers. Addresses that belong to no server of the cluster are skipped.
func (e *Examiner) links(ctx context.Context, others []string) []*diagnosispb.Link {
	others = slices.Compact(slices.Sorted(slices.Values(others[:min(len(others), maxOthers)])))
	links := make([]*diagnosispb.Link, len(others))
	var wait sync.WaitGroup
	slots := make(chan struct{}, parallelPings)
	for i, address := range others {
		if address == e.config.Address || !e.config.Known(ctx, address) {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			links[i] = e.link(ctx, address)
		})
	}
	wait.Wait()
	return slices.DeleteFunc(links, func(l *diagnosispb.Link) bool { return l == nil })
}

// link pings another server.
func (e *Examiner) link(ctx context.Context, address string) *diagnosispb.Link {
	l := &diagnosispb.Link{Address: address}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	conn, err := e.config.Conn(address)
	if err != nil {
		l.Failure = err.Error()
		return l
	}
	client := diagnosispb.NewDiagnosisClient(conn)
	var trips []*diagnosispb.Link
	for range 1 + pings {
		sent := time.Now()
		answer, err := client.Ping(ctx, &diagnosispb.PingRequest{Cluster: e.config.Cluster()})
		if err != nil {
			l.Failure = status.Convert(err).Message()
			break
		}
		took := time.Since(sent)
		trips = append(trips, &diagnosispb.Link{RoundTripMicros: uint64(max(1, took.Microseconds())),
			AheadNanos: int64(answer.GetUnixNanos()) - (e.config.Wall() - int64(took/2))})
	}
	if len(trips) < 2 {
		l.Failure = cmp.Or(l.Failure, "no answer")
		return l
	}
	l.Failure, trips = "", trips[1:]
	slices.SortFunc(trips, func(a, b *diagnosispb.Link) int {
		return cmp.Compare(a.RoundTripMicros, b.RoundTripMicros)
	})
	l.RoundTripMicros = trips[len(trips)/2].RoundTripMicros
	l.AheadNanos = trips[0].AheadNanos // the quickest answer gives the best estimate
	return l
}

// Ping implements diagnosispb.DiagnosisServer.
func (e *Examiner) Ping(
	_ context.Context, r *diagnosispb.PingRequest,
) (*diagnosispb.PingResponse, error) {
	if err := e.meant(r.GetCluster(), ""); err != nil {
		return nil, err
	}
	return &diagnosispb.PingResponse{UnixNanos: uint64(max(0, e.config.Wall()))}, nil
}

// AskExamine examines this server, or has another server examine itself.
func (e *Examiner) AskExamine(
	ctx context.Context, r *diagnosispb.ExamineRequest,
) (*diagnosispb.Examination, error) {
	if r.GetServer() == "" || r.GetServer() == e.config.Address {
		return e.Examine(ctx, r)
	}
	client, err := e.other(ctx, r.GetServer())
	if err != nil {
		return nil, err
	}
	return client.Examine(ctx, &diagnosispb.ExamineRequest{Cluster: e.config.Cluster(),
		Server: r.Server, Others: r.Others})
}

// AskCollect collects an item from this server, or has another server do so.
func (e *Examiner) AskCollect(
	ctx context.Context, r *diagnosispb.CollectRequest,
) (*diagnosispb.CollectResponse, error) {
	if r.GetServer() == "" || r.GetServer() == e.config.Address {
		return e.Collect(ctx, r)
	}
	client, err := e.other(ctx, r.GetServer())
	if err != nil {
		return nil, err
	}
	return client.Collect(ctx, &diagnosispb.CollectRequest{Cluster: e.config.Cluster(),
		Server: r.Server, Item: r.Item, Seconds: r.Seconds})
}

// other connects to another server of the cluster.
func (e *Examiner) other(
	ctx context.Context, address string,
) (diagnosispb.DiagnosisClient, error) {
	if !e.config.Known(ctx, address) {
		return nil, status.Errorf(codes.NotFound, "no server of the cluster has the address %q",
			address)
	}
	conn, err := e.config.Conn(address)
	if err != nil {
		return nil, status.Error(codes.Unavailable, fmt.Sprintf("%s: %v", address, err))
	}
	return diagnosispb.NewDiagnosisClient(conn), nil
}
