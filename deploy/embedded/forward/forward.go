package forward

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

const (
	// maxOpen limits the number of calls that are forwarded at a time. Each party is granted
	// openGranted.
	maxOpen, openGranted = 16 << 10, 512
	// maxBytes is the default of Config.Bytes. A third of Config.Bytes is for messages of streams that
	// wait for space among the server's answers. Each party is granted waitingGranted of that. The
	// rest is for requests. Each party is granted requestsGranted of that.
	maxBytes = 128 << 20

	requestsGranted, waitingGranted = 8 << 20, 4 << 20
	// defaultPerConnection is the default of Config.PerConnection.
	defaultPerConnection = 512
	// defaultPatience is the default of Config.Patience. The etcd client for Go makes a call that was
	// not sent up to a hundred times.
	defaultPatience = time.Second
)

// refusedField is in the trailer of a call that a server refuses because it has no part of the
// coordination store. It says that nothing was done and that another server may be asked.
const refusedField = "tidemark-not-served"

// NotServed returns the trailer of a call that is refused before anything was done, and may be
// forwarded to another server.
func NotServed() metadata.MD { return metadata.Pairs(refusedField, "1") }

// Config configures a Forwarder. Members, Dialer, Local, Forwarded, Outgoing, Refusal, Party and
// Answers must be set. All functions may be called from any goroutine, and must not block.
type Config struct {
	// Members lists the addresses of the members of the core, without this server.
	Members func() []string
	// Dialer makes a dialer for servers, with small windows of flow control. The Forwarder closes
	// it.
	Dialer func() *client.Dialer
	// Local returns this server's own service with a name, as soon as the server has it.
	Local func(service string) (*grpc.ServiceDesc, any, bool)
	// Forwarded reports whether another server has forwarded a call.
	Forwarded func(context.Context) bool
	// Outgoing returns the context of the call to a member. Its metadata say that the call is
	// forwarded, and who the client is, and contain the client's metadata that concern the member.
	Outgoing func(context.Context) context.Context
	// Refusal returns why this server does not answer itself. It has the code Unavailable.
	Refusal func() error
	// Party returns the principal of a call's client. Clients of one principal share limits.
	Party func(context.Context) string
	// Answers limits large answers that are being sent to clients.
	Answers *limit.ResponseBudget
	// Bytes limits the requests that are under way, and the messages of streams that wait for space.
	// The default is 128 MiB.
	Bytes int64
	// PerConnection limits the calls on one connection to a member. The default is 512.
	PerConnection int
	// Patience is the time for which all members are asked again if none can be reached. The default
	// is 1 s.
	Patience time.Duration
	// Random is the source of jitter, and of the choice of the member that is asked first. The default
	// is math/rand/v2.
	Random func() uint64
	// Registry registers the metrics. It may be nil.
	Registry metric.Registry
}

// Forwarder forwards calls. Safe for concurrent use.
type Forwarder struct {
	config   Config
	open     *quota.Bytes
	requests *quota.Bytes
	waiting  *quota.Bytes
	// largeWaits is set while a message waits that is larger than all of waiting.
	largeWaits atomic.Bool
	metrics    *metrics
	members    members
	// running counts the goroutines of streams, and the goroutines that close connections.
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		lanes  []*lane
		closed bool
	}
}

// New makes a Forwarder.
func New(c Config) *Forwarder {
	if c.PerConnection <= 0 {
		c.PerConnection = defaultPerConnection
	}
	if c.Bytes <= 0 {
		c.Bytes = maxBytes
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
	if c.Random == nil {
		c.Random = rand.Uint64
	}
	waiting := c.Bytes / 3
	return &Forwarder{config: c, open: quota.NewBytes(maxOpen, openGranted),
		requests: quota.NewBytes(c.Bytes-waiting, min(requestsGranted, c.Bytes-waiting)),
		waiting:  quota.NewBytes(waiting, min(waitingGranted, waiting)), metrics: newMetrics(c.Registry)}
}

// Close closes the connections to members. The server that has the services must have ended its
// calls.
func (f *Forwarder) Close() {
	f.mu.Lock()
	f.mu.closed = true
	lanes := f.mu.lanes
	f.mu.lanes = nil
	f.mu.Unlock()
	for _, l := range lanes {
		_ = l.dialer.Close()
	}
	f.running.Wait()
}

// refuse refuses a call that was forwarded to this server, because a call is forwarded only once.
// The trailer tells that to the other server.
func (f *Forwarder) refuse(setTrailer func(metadata.MD)) error {
	setTrailer(NotServed())
	return f.config.Refusal()
}

// errTooMany is the error for a client whose party has used its share of calls. Clients of etcd
// recognize its whole text, and retry later.
var errTooMany = rpctypes.ErrGRPCRequestTooManyRequests

// errLocal: this server answers itself by now.
var errLocal = errors.New("forward: this server answers by itself")

// one returns a function that gives a call's message to a handler of this server.
func one(request proto.Message) func(any) error {
	return func(into any) error {
		m, ok := into.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "%T is no message", into)
		}
		proto.Merge(m, request)
		return nil
	}
}

// Member returns the address of the member that calls go to; "" if none has answered.
func (f *Forwarder) Member() string {
	m := &f.members
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.records[m.preferred].serving {
		return ""
	}
	return m.preferred
}
