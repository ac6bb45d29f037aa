package rpc

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/outbox"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BatchServerConfig configures a BatchServer. Either Handle or Take is required.
type BatchServerConfig struct {
	// Take is like Handle, for a handler whose requests may take time. It does the part of the work
	// in which the order of the requests matters, without waiting for anything, and returns the
	// rest of the work, or nil. See Work. It does not keep batch.
	Take func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) Work
	// Handle takes over the requests of one message. It owns batch. It, or what it passes a request
	// to, calls reply exactly once for each request, from any goroutine, with Response.Id =
	// Request.Id: a request without reply holds its place on the stream for as long as the stream
	// lives. reply never blocks, does not keep the response, and does nothing once the stream has
	// ended.
	//
	// While Handle runs no further request of the same client is delivered, so Handle should pass
	// the work on and return.
	Handle func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response))
	// Cluster returns the cluster to which this node belongs, 0 while the node does not know. A
	// Hello that names another cluster is refused. nil: not checked.
	Cluster func() uint64
	// MaxInFlight bounds the requests of one stream that have no response yet (default 8192).
	// Beyond it the stream is not read.
	MaxInFlight int
	// MaxInFlightBytes bounds, per stream, the bytes of such requests and of responses that wait to
	// be sent (default 32 MiB). Beyond it the stream is not read. When responses alone reach it,
	// further large ones are replaced by OVERLOADED.
	MaxInFlightBytes int
	// Memory bounds the memory of all streams: of requests without response, of responses that wait
	// to be sent, and of messages that are being received. Without memory, requests get OVERLOADED,
	// responses of reads are replaced by OVERLOADED, and large messages end their stream with
	// RESOURCE_EXHAUSTED. Default: a budget of 1 GiB.
	Memory   *limit.RequestMemory
	MaxBytes int64
	// Unpacked, if set, returns how many bytes of memory a request takes besides its encoding while
	// it is served. It must be quick, and must not trust the request's contents.
	Unpacked func(q *kvpb.Request) int
	// MaxStreams bounds the open streams (default 1024). Principals share them (package quota): a
	// principal that has its share loses an older stream for each new one, or is refused with
	// RESOURCE_EXHAUSTED.
	MaxStreams int
	// Guard, if set, decides before Handle or Take whether a client may make a request. Servers
	// need no permissions. nil: every client may.
	Guard access.Guard
	// CertificateUsers makes the common name of a client's verified certificate its user, if it
	// sends no token. Set it only if the server knows which authority signs clients' certificates:
	// otherwise verified certificates are those of servers.
	CertificateUsers bool
	// RequiresAuth reports whether a request needs any right. Its cost must not depend on the size
	// of the request. lasting says that the answer may come late and contain newer data, so that
	// the request is authorized again. A refusal is the answer instead. RequiresAuth is required
	// with Guard, and must be safe for concurrent use.
	RequiresAuth func(q *kvpb.Request) (requires, lasting bool, refusal *kvpb.Error)
	// Permissions appends the permissions that a request needs, which alias the request. It is
	// called only for requests that require any, and only if the client has limited rights, because
	// permissions take memory for each key. A refusal is the answer instead. Permissions is
	// required with Guard, and must be safe for concurrent use.
	Permissions func(q *kvpb.Request, needs []access.Permission) (
		_ []access.Permission, refusal *kvpb.Error)
	// Calls answers the calls among the requests, which neither Handle nor Take nor Guard sees.
	// nil: calls are not served.
	Calls *CallServer
	// Took, if set, is called for one in 64 requests with its duration: from when it was received
	// until its response was handed to the stream. It must not block.
	Took func(kind RequestKind, took time.Duration)
	// Logger is nil for none, Registry nil for no metrics.
	Logger   *slog.Logger
	Registry metric.Registry
}

// BatchServer reads requests from the streams of clients and sends responses back. It does not
// interpret them.
type BatchServer struct {
	config  BatchServerConfig
	clients *clients
	places  *quota.Places
	memory  *limit.RequestMemory
	metrics *batchMetrics
	open    openStreams
	// decoding serializes the decoding of large messages per principal: each mutex is held while a
	// large message of its principals is decoded.
	decoding [decodingTurns]sync.Mutex
	// stolen counts the readers of all streams that were replaced and have not finished; see
	// handoff.
	stolen atomic.Int32
}

// NewBatchServer makes a BatchServer. Give it to Server.ServeClients. It has no Close: it ends
// with the server.
func NewBatchServer(c BatchServerConfig) *BatchServer {
	if (c.Handle == nil) == (c.Take == nil) {
		panic("rpc: BatchServerConfig needs Handle or Take")
	}
	if c.Guard != nil && (c.RequiresAuth == nil || c.Permissions == nil) {
		panic("rpc: BatchServerConfig with Guard needs RequiresAuth and Permissions")
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 8192
	}
	if c.MaxInFlightBytes <= 0 {
		c.MaxInFlightBytes = 32 << 20
	}
	if c.Memory == nil {
		c.Memory = limit.NewRequestMemory(c.MaxBytes)
	}
	if c.MaxStreams <= 0 {
		c.MaxStreams = 1024
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &BatchServer{config: c, clients: newClients(), metrics: newBatchMetrics(c.Registry),
		places: quota.NewPlaces(c.MaxStreams, grantedStreams, limit.PlaceSettled),
		memory: c.Memory}
}

// grantedStreams is how many streams a principal may have whatever its share.
const grantedStreams = 8

// errNoPlace ends a new stream if no older stream of its principal may lose its place yet.
var errNoPlace = status.Error(codes.ResourceExhausted, "this server has given this host, or this "+
	"certificate, its share of connections; try another server, or later")

// errConnectionClosed ends a stream whose connection is closed already.
var errConnectionClosed = status.Error(codes.Unavailable, "the connection is closed")

// errPlaceLost ends a stream that has lost its place to another stream of its principal.
var errPlaceLost = status.Error(codes.Unavailable, "this server has ended the connection, because "+
	"the same host, or the same certificate, has opened more than its share of them")

// Gone reports that a client has no stream open here, so that it does not wait for answers: the
// client has ended, was disconnected, or will open another stream and send again the requests that
// it still wants.
func (s *BatchServer) Gone(client uint64) bool { return s.clients.gone(client) }

// ClientIdentity returns the address from which a client is connected, and the name of its user,
// for display; "" if it has no stream open here, or the user is unknown.
func (s *BatchServer) ClientIdentity(client uint64) (address, user string) {
	address, authorizer := s.clients.identity(client)
	if authorizer != nil && s.config.Guard.Enabled() {
		user = authorizer.client().Name()
	}
	return address, user
}

// serve serves a client's connection until it ends. first holds the client's hello, and perhaps
// requests.
func (s *BatchServer) serve(
	ctx context.Context, conn *transport.Conn, first *kvpb.BatchRequest, from origin,
) {
	if first.Hello.GetServer() {
		done, err := from.server()
		if err != nil {
			conn.Refuse(err)
			return
		}
		defer done()
	}
	turn, err := s.admit(first.Hello)
	if err != nil {
		conn.Refuse(err)
		return
	}
	defer s.clients.close(turn)
	place := s.places.Enter(from.party, func() {
		s.metrics.placesLost.Inc()
		conn.Interrupt(errPlaceLost)
	})
	if place == nil {
		conn.Refuse(errNoPlace)
		return
	}
	defer place.Leave()
	s.metrics.streams.Inc()
	defer s.metrics.streams.Dec()
	if conn.Accept() != nil {
		return
	}
	ss := &serverStream{
		server:   s,
		turn:     turn,
		number:   first.Hello.Stream,
		conn:     conn,
		room:     make(chan struct{}, 1),
		inFlight: make(map[uint64]int),
		memory:   s.memory.Credit(from.party),
		timed:    newTimedRequests(s.config.Took, first.Hello.Client),
		throttle: limit.ThrottleOf(conn.Raw()),
		ofServer: first.Hello.Server,
	}
	if s.config.Guard != nil && !first.Hello.Server {
		ss.authorizer = newAuthorizer(&s.config, s.metrics, from, first.Hello.Token)
	}
	s.clients.identify(turn, from.address, ss.authorizer)
	conn.SetBudget(&ss.memory)
	defer ss.giveBack()
	s.open.add(ss)
	defer s.open.remove(ss)
	ss.out = outbox.New(ss.progressLocked)
	ss.out.Attach(conn)
	conn.Watch(wire.ServerSilence, ss.out.KeepAlive)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ss.ctx = ctx
	ss.callContext, ss.endCalls = context.WithCancel(contextOfCalls(ctx, from.peer))
	defer ss.endCalls()
	var sender sync.WaitGroup
	sender.Go(ss.out.Run)
	readers := handoff{stream: ss, ended: make(chan error, 1)}
	ss.readers = &readers
	err = readers.read(first)
	if status.Code(err) == codes.InvalidArgument {
		ss.throttle.PenalizeUseless()
	}
	ss.endCalls()
	// Do not wait for a client that does not read its answers.
	hurry := time.AfterFunc(endTimeout, func() { _ = conn.Close() })
	ss.out.Close()
	sender.Wait()
	hurry.Stop()
	if err == nil {
		_ = conn.CloseSend()
		_ = conn.Close()
	} else {
		conn.End(err)
	}
	readers.wait()
	ss.calls.Wait()
}

// endTimeout bounds how long a stream that has ended waits for the message that is being sent.
const endTimeout = 500 * time.Millisecond

// admit registers a client's stream; clients.close ends it.
func (s *BatchServer) admit(hello *kvpb.Hello) (*clientTurn, error) {
	if err := s.checkHello(hello); err != nil {
		return nil, err
	}
	// Streams that have lost their place still count until they have ended.
	return s.clients.open(hello, s.config.MaxStreams+max(s.config.MaxStreams/8, 1))
}

func (s *BatchServer) checkHello(hello *kvpb.Hello) error {
	switch {
	case hello == nil:
		return status.Error(codes.InvalidArgument, "the first message of a stream must carry Hello")
	case hello.Client == 0:
		return status.Error(codes.InvalidArgument, "Hello without a client id")
	case hello.Stream == 0:
		return status.Error(codes.InvalidArgument, "Hello without a stream number; they start at 1")
	case len(hello.Token) > wire.MaxTokenBytes:
		return errTokenTooLong
	}
	if s.config.Cluster != nil && hello.Cluster != 0 {
		if mine := s.config.Cluster(); mine != 0 && mine != hello.Cluster {
			return status.Errorf(codes.FailedPrecondition,
				"this node belongs to cluster %016x, not to %016x: check the endpoints", mine,
				hello.Cluster)
		}
	}
	return nil
}

// serverStream is one client's stream on the server.
type serverStream struct {
	server *BatchServer
	turn   *clientTurn
	number uint64
	conn   *transport.Conn
	// ctx ends with the server, and when the stream is over.
	ctx context.Context
	out *outbox.Outbox
	// readers manages the goroutines that read the stream.
	readers *handoff
	// authorizer checks the client's permissions; nil: it may do everything.
	authorizer *authorizer
	// throttle is the connection's throttle; nil: it has none.
	throttle *limit.ConnThrottle
	// ofServer is set if the client is a server of the cluster.
	ofServer bool
	// room holds a token if the reader may have room to read on. Capacity 1.
	room chan struct{}
	// callContext is the context of the stream's calls. endCalls ends it when no client waits for
	// them any more. When the stream ends, it waits for its calls.
	callContext context.Context
	endCalls    context.CancelFunc
	calls       sync.WaitGroup

	// Guarded by out.mu. inFlight maps the id of each request without response to its size in
	// memory; the size of a request that is timed is negative. bytes is the sum of the sizes.
	// memory is how much of the budget the stream has taken, for requests and for responses that
	// are not sent (heldLocked).
	inFlight map[uint64]int
	timed    timedRequests
	bytes    int
	memory   limit.Credit
	// uncovered is set if the budget had too little memory for the stream at the last check.
	uncovered bool
	// calling counts the calls in inFlight. held is the memory of their answers until they are
	// sent.
	calling int
	held    []heldAnswer
	// waiting is set while the reader waits for room.
	waiting bool
	// working is the reader that works on a message of several requests. Their answers gather
	// meanwhile, unless another goroutine sends them, and the reader sends them when it has
	// finished.
	working *reader
	// few is set for a message of few requests, with ids from low to high. Their answers wait for
	// the last of them, and no goroutine is woken to send them earlier.
	few       bool
	low, high uint64
}

// serve reads until the client ends the stream, breaks the protocol, or is fenced off, or until
// self is replaced. batch has been read already; nil: nothing has.
func (ss *serverStream) serve(batch *kvpb.BatchRequest, self *reader) error {
	size := 0 // of the message that the batch is of; a hello is small
	for {
		if err := ss.authorizer.show(batch.GetToken()); err != nil {
			return err
		}
		if len(batch.GetRequests()) > 0 {
			work, err := ss.hand(batch.Requests, size)
			if err != nil {
				return err
			}
			if work != nil {
				several := len(batch.Requests) > 1
				if several {
					ss.gather(self, batch.Requests)
				}
				on := ss.readers.do(self, work, len(batch.Requests))
				if several {
					ss.sendGathered(self)
				}
				if !on {
					return errHandedOff
				}
			}
		}
		if err := ss.wait(ss.hasRoomLocked); err != nil {
			return err
		}
		if ss.throttle.Over() || ss.closed() {
			return errConnectionClosed // requests that were already read are dropped
		}
		message, err := ss.conn.Receive()
		if errors.Is(err, io.EOF) {
			// The client sends no more requests, but waits for its answers.
			return ss.wait(ss.isDoneLocked)
		}
		if err != nil {
			return err
		}
		batch = new(kvpb.BatchRequest)
		size = wire.DecodedSize(message, batch)
		ss.throttle.ChargeMessage(size, size-len(message) >= largeMessage)
		if err := ss.decode(message, size, batch); err != nil {
			return status.Errorf(codes.InvalidArgument, "message of the client: %v", err)
		}
		if batch.Hello != nil {
			return status.Error(codes.InvalidArgument,
				"Hello again: only the first message of a stream may carry it")
		}
	}
}

// decode decodes a message that takes so many bytes of memory. A large one is decoded in slices,
// between which other goroutines may run. Of each principal a server decodes one large message at a
// time, whatever the number of its streams, and no other principal waits for it.
func (ss *serverStream) decode(message []byte, size int, batch *kvpb.BatchRequest) error {
	if size < largeMessage || ss.ofServer {
		return wire.UnmarshalOwned(message, batch)
	}
	turn := &ss.server.decoding[maphash.String(decodingSeed, ss.memory.Principal())%decodingTurns]
	turn.Lock()
	defer turn.Unlock()
	if err := wire.CheckParts(message, batch); err != nil {
		return err
	}
	return decodeSlices(message, batch, ss.throttle.Rest)
}

// Principals share the mutexes of decoding by a hash of their names.
const decodingTurns = 64

var decodingSeed = maphash.MakeSeed()

// largeMessage is the decoded size from which a message takes a millisecond or more to decode.
const largeMessage = 1 << 20

// hand passes requests to Handle or Take, and returns the rest of the work. The requests share the
// memory of a message, in bytes, which may be more than the requests need; each request counts for
// its part.
func (ss *serverStream) hand(requests []*kvpb.Request, bytes int) (work Work, err error) {
	share := bytes / len(requests)
	checked := ss.server.config.Calls.check(requests)
	ss.out.Lock()
	before := ss.bytes
	for i, r := range requests {
		if _, ok := ss.inFlight[r.Id]; ok {
			ss.out.Unlock()
			return nil, status.Errorf(codes.InvalidArgument, "request id %d is used twice at a time",
				r.Id)
		}
		size := share
		if len(requests) > 1 { // a single request is not larger than its message
			size = max(r.SizeVT(), share)
		}
		if r.Call != nil {
			size += checked[i].bytes
		} else if ss.server.config.Unpacked != nil {
			size += ss.server.config.Unpacked(r)
		}
		ss.inFlight[r.Id] = size
		ss.bytes += size
	}
	if ss.timed.took != nil {
		if i, ok := ss.timed.pick(len(requests)); ok && requests[i].Call == nil &&
			ss.inFlight[requests[i].Id] > 0 {
			ss.inFlight[requests[i].Id] *= -1
			ss.timed.begin(requests[i])
		}
	}
	if !ss.memory.Cover(ss.heldLocked()) {
		sizes := make([]int, len(requests))
		for i, r := range requests {
			sizes[i] = max(ss.inFlight[r.Id], -ss.inFlight[r.Id])
			ss.inFlight[r.Id] = 0
		}
		ss.timed.forget(requests)
		ss.bytes = before
		ss.out.Unlock()
		ss.server.metrics.overloaded.Add(float64(len(requests)))
		for i, r := range requests {
			if refusal := ss.memory.Never(r.Id, "request", sizes[i], ss.conn.Taken()); refusal != nil {
				ss.reply(refusal)
				continue
			}
			ss.reply(wire.ErrorResponse(r.Id, kvpb.ErrorCode_OVERLOADED, "this server has no memory for "+
				"more requests, or has given this client's host its share; try again more slowly"))
		}
		return nil, nil
	}
	ss.out.Unlock()
	ss.server.metrics.requests.Add(float64(len(requests)))
	ss.server.metrics.batches.Inc()
	ss.throttle.ChargeRequests(len(requests), partsOfCalls(checked))

	var calls []*kvpb.Request
	whole := requests[:0]
	for i, r := range requests {
		if r.Call != nil {
			if refusal := ss.enterCall(checked[i]); refusal != nil {
				ss.reply(&kvpb.Response{Id: r.Id, Error: refusal})
			} else {
				calls = append(calls, r)
			}
			continue
		}
		if r.Command == nil {
			ss.reply(wire.ErrorResponse(r.Id, kvpb.ErrorCode_INVALID_ARGUMENT,
				"the request has no command, or one this node does not know"))
			continue
		}
		if ss.authorizer != nil {
			if refusal := ss.authorizer.refusal(r); refusal != nil {
				ss.reply(refusal)
				continue
			}
		}
		whole = append(whole, r)
	}
	if len(whole)+len(calls) == 0 {
		return nil, nil
	}
	ss.server.metrics.calls.Add(float64(len(calls)))
	err = ss.turn.deliver(ss.ctx, ss.number, func() {
		var called Work
		if len(calls) > 0 {
			called = ss.server.config.Calls.begin(ss, calls)
		}
		if len(whole) == 0 {
			work = called
			return
		}
		if take := ss.server.config.Take; take != nil {
			work = take(ss.turn.client, whole, ss.reply)
		} else {
			ss.server.config.Handle(ss.turn.client, whole, ss.reply)
		}
		if work == nil {
			work = called
		} else if called != nil {
			work = bothWorks{work, called}
		}
	})
	return work, err
}
