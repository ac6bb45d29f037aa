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
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

const (
	// maxOpen bounds the calls that are passed on at a time; each party is granted openGranted.
	maxOpen, openGranted = 16 << 10, 512
	// maxBytes is the default of Config.Bytes. A third of Config.Bytes is for messages of streams that
	// wait for room among the answers of the server, of which each party is granted waitingGranted;
	// the rest is for requests, of which each party is granted requestsGranted.
	maxBytes = 128 << 20

	requestsGranted, waitingGranted = 8 << 20, 4 << 20
	// defaultPerConnection is the default of Config.PerConnection.
	defaultPerConnection = 512
	// defaultPatience is the default of Config.Patience. etcd's client for Go makes a call that was
	// not sent up to a hundred times.
	defaultPatience = time.Second
)

// refusedField is in the trailer of a call that a server refuses because it has no part of the
// coordination store: nothing was done, and another server may be asked.
const refusedField = "tidemark-not-served"

// NotServed is the trailer of a call that is refused before anything was done, and may be passed on
// to another server.
func NotServed() metadata.MD { return metadata.Pairs(refusedField, "1") }

// Config is what a Forwarder is made of. Members, Dialer, Local, Forwarded, Outgoing, Refusal,
// Party and Answers must be set. All functions may be called from any goroutine, and must not
// block.
type Config struct {
	// Members lists the addresses of the members of the core, without this server.
	Members func() []string
	// Dialer makes a dialer of servers, with small windows of flow control. The Forwarder closes it.
	Dialer func() *client.Dialer
	// Local gives this server's own service of a name, once it serves by itself.
	Local func(service string) (*grpc.ServiceDesc, any, bool)
	// Forwarded says that a call was passed on by another server.
	Forwarded func(context.Context) bool
	// Outgoing is the context of the call to a member: its metadata say that the call is passed on,
	// who the client is, and of what the client's metadata say what the member is to know.
	Outgoing func(context.Context) context.Context
	// Refusal says why this server does not answer by itself. It has the code Unavailable.
	Refusal func() error
	// Party names the client with which that of a call shares bounds.
	Party func(context.Context) string
	// Answers bounds large answers on their way to clients.
	Answers *limit.ResponseBudget
	// Bytes bounds the requests that are under way, and the messages of streams that wait for room.
	// Default 128 MiB.
	Bytes int64
	// PerConnection bounds the calls on one connection to a member. Default 512.
	PerConnection int
	// Patience is for how long members are asked again if none can be. Default 1 s.
	Patience time.Duration
	// Random is the source of jitter, and of the member that is asked first. Default math/rand/v2.
	Random func() uint64
	// Registry is nil for no metrics.
	Registry metric.Registry
}

// Forwarder passes calls on. Safe for concurrent use.
type Forwarder struct {
	config   Config
	open     *quota.Bytes
	requests *quota.Bytes
	waiting  *quota.Bytes
	// largeWaits: a message that waits is larger than waiting has room for.
	largeWaits atomic.Bool
	metrics    *metrics
	members    members
	// running are the goroutines of streams, and those that close connections.
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

// method is a method whose calls are passed on.
type method struct {
	service, name string
	// full is "/service/name".
	full string
	// at is the method's place in the description of its service.
	at            int
	input, output protoreflect.MessageType
	// reads: the method changes nothing. stream: a call has several messages of either side. waits: a
	// call may wait for what other clients do. ofLeader: a call is for the member that leads.
	reads, stream, waits, ofLeader bool
}

// Describe makes the description of a service that passes all calls on. Its methods have the order
// of those of the given one. It panics if the service is not one of a protobuf file that is linked
// in.
func (f *Forwarder) Describe(d *grpc.ServiceDesc) *grpc.ServiceDesc {
	to := &grpc.ServiceDesc{ServiceName: d.ServiceName, Metadata: d.Metadata}
	for i, of := range d.Methods {
		m := methodOf(d.ServiceName, of.MethodName, i)
		to.Methods = append(to.Methods, grpc.MethodDesc{MethodName: of.MethodName,
			Handler: f.unaryHandler(m)})
	}
	for i, of := range d.Streams {
		m := methodOf(d.ServiceName, of.StreamName, i)
		of.Handler = f.streamHandler(m, of)
		to.Streams = append(to.Streams, of)
	}
	return to
}

func methodOf(service, name string, at int) *method {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(
		protoreflect.FullName(service + "." + name))
	d, ok := found.(protoreflect.MethodDescriptor)
	if err != nil || !ok {
		panic("forward: no descriptor of the method " + service + "." + name)
	}
	full := "/" + service + "/" + name
	return &method{service: service, name: name, full: full, at: at, input: typeOf(d.Input()),
		output: typeOf(d.Output()), reads: reads[full], waits: waits[full], ofLeader: ofLeader[full],
		stream: d.IsStreamingClient() || d.IsStreamingServer()}
}

func typeOf(d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		panic("forward: no type of the message " + string(d.FullName()))
	}
	return t
}

// refuse refuses a call that was passed on to this server, which does not pass it on again. The
// trailer says so to the server that has passed it on.
func (f *Forwarder) refuse(setTrailer func(metadata.MD)) error {
	setTrailer(NotServed())
	return f.config.Refusal()
}

// errTooMany is what a client hears whose party has its share of calls. Clients of etcd know it by
// its whole text, and ask again later.
var errTooMany = rpctypes.ErrGRPCRequestTooManyRequests

// errLocal: this server answers by itself by now.
var errLocal = errors.New("forward: this server answers by itself")

// one gives the message of a call to a handler of this server.
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
