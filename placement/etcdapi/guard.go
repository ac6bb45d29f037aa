package etcdapi

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// guard refuses calls because of their metadata or of this member's state, before a service sees
// them, and has the results of calls audited.
type guard struct {
	*shared
	// began is when the services were made.
	began time.Time
	// led is set once a leader was known, or LeaderGrace is over since began.
	led atomic.Bool
}

// registrar registers services whose methods are called behind the guard. The guard is not an
// interceptor of the gRPC server, because that server may have other services.
type registrar struct {
	grpc.ServiceRegistrar
	guard *guard
}

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(description *grpc.ServiceDesc, service any) {
	guarded := *description
	guarded.Methods = slices.Clone(description.Methods)
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		m.Handler = r.guard.method("/"+guarded.ServiceName+"/"+m.MethodName, m.Handler)
	}
	guarded.Streams = slices.Clone(description.Streams)
	for i := range guarded.Streams {
		d := guarded.Streams[i]
		guarded.Streams[i].Handler = r.guard.stream("/"+guarded.ServiceName+"/"+d.StreamName, d)
	}
	r.ServiceRegistrar.RegisterService(&guarded, service)
}

func (g *guard) method(name string, handler grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		if _, err := g.admit(ctx); err != nil {
			return nil, err
		}
		c := &authorize.Call{Method: name}
		ctx = authorize.WithCall(ctx, c)
		answer, err := handler(service, ctx, func(request any) error {
			if err := decode(request); err != nil {
				return err
			}
			c.Request = request
			if err := g.admitToLearner(request); err != nil {
				return err
			}
			return g.room(ctx, request)
		}, interceptor)
		g.Audit(ctx, c, err)
		if err != nil {
			return nil, err
		}
		return g.bound(ctx, c.Request, answer)
	}
}

func (g *guard) stream(name string, d grpc.StreamDesc) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		c := &authorize.Call{Method: name}
		ctx := authorize.WithCall(stream.Context(), c)
		stream = streamWithContext{stream, ctx}
		if g.Answers != nil {
			stream = boundedStream{stream, g.Answers}
		}
		if name == pb.Watch_Watch_FullMethodName {
			stream = permittedWatches{stream, g.shared, &sync.Mutex{}}
		}
		err := g.serveStream(d, service, stream)
		g.Audit(ctx, c, err)
		return err
	}
}

func (g *guard) serveStream(d grpc.StreamDesc, service any, stream grpc.ServerStream) error {
	needsLeader, err := g.admit(stream.Context())
	if err != nil {
		return err
	}
	if g.Cluster.Learner() && d.StreamName != "Snapshot" {
		return rpctypes.ErrGRPCNotSupportedForLearner
	}
	if !needsLeader {
		return d.Handler(service, stream)
	}
	return g.withLeader(stream, func(s grpc.ServerStream) error { return d.Handler(service, s) })
}

// admit checks a call's metadata, and reports whether the call requires a leader.
func (g *guard) admit(ctx context.Context) (needsLeader bool, err error) {
	version := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataClientAPIVersionKey)
	if len(version) > 0 && !utf8.ValidString(version[0]) {
		return false, rpctypes.ErrGRPCInvalidClientAPIVersion
	}
	demand := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	if len(demand) == 0 || demand[0] != rpctypes.MetadataHasLeader {
		return false, nil
	}
	if !g.knowsLeader(ctx) {
		return true, rpctypes.ErrGRPCNoLeader
	}
	return true, nil
}

// knowsLeader reports whether there is a leader. A member that has just started has not heard of
// one yet, and waits: otherwise its client would be told that the cluster has none.
func (g *guard) knowsLeader(ctx context.Context) bool {
	for {
		l, changed := g.Store.Leadership()
		if l.Leader != 0 || g.led.Load() {
			g.led.Store(true)
			return l.Leader != 0
		}
		timer := time.NewTimer(time.Until(g.began.Add(g.LeaderGrace)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-changed:
			timer.Stop()
		case <-timer.C:
			g.led.Store(true)
		}
	}
}

// admitToLearner refuses requests that a member without a vote does not answer.
func (g *guard) admitToLearner(request any) error {
	if !g.Cluster.Learner() {
		return nil
	}
	switch r := request.(type) {
	case *pb.StatusRequest, *coordpb.ReadClockRequest:
		return nil
	case *pb.RangeRequest:
		if r.Serializable {
			return nil
		}
	}
	return rpctypes.ErrGRPCNotSupportedForLearner
}

var errLeaderGone = errors.New("no leader for too long")

// withLeader serves a stream whose context ends when there has been no leader for LeaderGrace.
func (g *guard) withLeader(stream grpc.ServerStream, serve func(grpc.ServerStream) error) error {
	ctx, cancel := context.WithCancelCause(stream.Context())
	var watching sync.WaitGroup
	watching.Go(func() { g.watchLeader(ctx, cancel) })
	err := serve(streamWithContext{stream, ctx})
	gone := context.Cause(ctx) == errLeaderGone
	cancel(nil)
	watching.Wait()
	if gone {
		return rpctypes.ErrGRPCNoLeader
	}
	return err
}

func (g *guard) watchLeader(ctx context.Context, cancel context.CancelCauseFunc) {
	grace := time.NewTimer(g.LeaderGrace)
	defer grace.Stop()
	led := false
	for {
		l, changed := g.Store.Leadership()
		switch leads := l.Leader != 0; {
		case leads:
			led = true
			grace.Stop()
		case led:
			led = false
			grace.Reset(g.LeaderGrace)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-grace.C:
			cancel(errLeaderGone)
			return
		}
	}
}

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s streamWithContext) Context() context.Context { return s.ctx }
