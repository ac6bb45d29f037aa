package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/callspans"
)

// Config configures a Handler. Find must be set.
type Config struct {
	// Find returns the service with a name, and its description. The error goes to the client.
	Find func(service string) (*grpc.ServiceDesc, any, error)
	// Healthy returns why this server does not serve; nil if it serves. serializable asks for this
	// server alone; otherwise it needs a leader and a quorum. Alarms with the excluded names are
	// ignored. The context has the client's peer.Peer.
	Healthy func(ctx context.Context, serializable bool, excluded map[string]bool) error
	// Versions returns the versions for GET /version: of the server, the cluster and the storage.
	Versions func() (server, cluster, storage string)

	// MaxRequestBytes bounds a message of a request, as JSON. Default 2 MiB.
	MaxRequestBytes int
	// MaxParts bounds the objects, lists and elements of a message of a request. Default 262144.
	MaxParts int
	// Room is the memory for requests, shared by parties. nil: no bound.
	Room Room
	// Party returns the party of a request, which takes from the room. nil: the client's IP
	// address.
	Party func(r *http.Request, from net.Addr) string
	// Outgoing, if not nil, marks the context of a call, so that services count the answer among
	// those on their way to clients. Answers that they count implement Counted.
	Outgoing func(context.Context) context.Context
	// Spans makes the spans of calls.
	Spans *callspans.Maker
	// ReadTimeout bounds the time in which a request must come, or the first message of a stream.
	// WriteTimeout is how long a client may read nothing of its answer. Default 1 min each.
	ReadTimeout, WriteTimeout time.Duration
}

// Room is a number of bytes that parties share. quota.Bytes implements it.
type Room interface {
	// Take takes bytes for a party. It returns false if they are not available.
	Take(party string, n int64) bool
	// Give returns them.
	Give(party string, n int64)
}

// Counted is a message that counts among those on their way to clients, until it is sent.
type Counted interface {
	// Becomes sets the size of the message's encoding, which counts from now on. The message must
	// not be used any more.
	Becomes(size int)
	// Sent notes that it was sent, or never will be.
	Sent()
}

// Handler serves the API over HTTP. Its methods may be called from any goroutine.
type Handler struct {
	config  Config
	handler http.Handler
}

var _ http.Handler = (*Handler)(nil)

// New makes a Handler for /health, /version and everything below /v3/.
func New(config Config) (*Handler, error) {
	if config.Find == nil || config.Healthy == nil || config.Versions == nil {
		return nil, errors.New("gateway of the etcd API: Find, Healthy and Versions must be set")
	}
	if config.MaxRequestBytes <= 0 {
		config.MaxRequestBytes = 2 << 20
	}
	if config.MaxParts <= 0 {
		config.MaxParts = 1 << 18
	}
	if config.ReadTimeout <= 0 {
		config.ReadTimeout = time.Minute
	}
	if config.WriteTimeout <= 0 {
		config.WriteTimeout = time.Minute
	}
	if config.Room == nil {
		config.Room = boundless{}
	}
	if config.Outgoing == nil {
		config.Outgoing = func(ctx context.Context) context.Context { return ctx }
	}
	if config.Party == nil {
		config.Party = func(_ *http.Request, from net.Addr) string {
			host, _, _ := net.SplitHostPort(from.String())
			return host
		}
	}
	h := &Handler{config: config}
	mux := http.NewServeMux()
	mux.HandleFunc("/health", h.health)
	mux.HandleFunc("/version", h.version)
	mux.HandleFunc("/v3/", h.call)
	h.handler = http.NewCrossOriginProtection().Handler(mux)
	return h, nil
}

type boundless struct{}

// Take implements Room.
func (boundless) Take(string, int64) bool { return true }

// Give implements Room.
func (boundless) Give(string, int64) {}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handler.ServeHTTP(w, r) }

// call serves one call of the API.
func (h *Handler) call(w http.ResponseWriter, r *http.Request) {
	x := newExchange(h, w, r)
	var last error
	defer func() { x.end(last) }()
	to, ok := routes[r.URL.Path]
	switch {
	case !ok:
		x.fail(status.Error(codes.NotFound, http.StatusText(http.StatusNotFound)))
		return
	case r.Method != http.MethodPost:
		x.fail(status.Error(codes.Unimplemented, http.StatusText(http.StatusMethodNotAllowed)))
		return
	}
	ctx, cancel, err := contextOf(r)
	if err != nil {
		x.fail(err)
		return
	}
	defer cancel()
	if err := ctx.Err(); err != nil {
		x.fail(err)
		return
	}
	ctx = h.config.Outgoing(ctx)
	description, service, err := h.config.Find(to.service)
	if err != nil {
		x.fail(err)
		return
	}
	for _, m := range description.Methods {
		if m.MethodName == to.method {
			ctx, traced := h.config.Spans.Call(ctx, to.service+"/"+to.method)
			traced(x.unary(ctx, m, service))
			return
		}
	}
	for _, m := range description.Streams {
		if m.StreamName == to.method {
			ctx, traced := h.config.Spans.Stream(ctx, to.service+"/"+to.method)
			last = x.stream(ctx, m, service)
			traced(last)
			return
		}
	}
	x.fail(status.Errorf(codes.Unimplemented, "unknown method %s", to.method))
}
