package late

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
	"github.com/tidemarkdb/tidemark/rpc/callspans"
)

// Services are gRPC services that are registered before the server's own implementation of them
// exists. Until then substitutes answer. Safe for concurrent use once Register has returned.
type Services struct {
	// Substitute makes the description of a service that answers while the server's own service does
	// not. The description has the methods of the given one, in the same order, and needs no service
	// value. Substitute is set before Register is called.
	Substitute func(*grpc.ServiceDesc) *grpc.ServiceDesc
	// Client adds the known facts about a call's client to the context of the call, or returns why the
	// call is refused before anything is done. It is set before anything is served.
	Client func(context.Context) (context.Context, error)
	// Ready reports whether the server's own services can answer. It is set before Begin is called.
	Ready func() bool
	// Calls counts calls for the metrics of etcd. If it is nil, they are not counted. It is set before
	// Register is called.
	Calls *etcdmetrics.Calls
	// Spans makes the spans of calls. It is set before Register is called.
	Spans *callspans.Maker

	// substitutes holds the results of Substitute, by the names of the services.
	substitutes map[string]*grpc.ServiceDesc
	// serving has the server's own services, by their names. It is nil before Begin and after End.
	serving atomic.Pointer[map[string]service]
	running atomic.Int64
}

// service is a service of the server's own.
type service struct {
	description    *grpc.ServiceDesc
	implementation any
}

// Register registers the services. Begin adds the server's own implementations.
func (l *Services) Register(to grpc.ServiceRegistrar, services ...*grpc.ServiceDesc) {
	if l.substitutes == nil {
		l.substitutes = make(map[string]*grpc.ServiceDesc)
	}
	for _, s := range services {
		if l.substitutes[s.ServiceName] == nil {
			l.substitutes[s.ServiceName] = l.Substitute(s)
		}
		late := &grpc.ServiceDesc{ServiceName: s.ServiceName, Metadata: s.Metadata}
		for i, m := range s.Methods {
			late.Methods = append(late.Methods, grpc.MethodDesc{MethodName: m.MethodName,
				Handler: l.method(s.ServiceName, i, l.Calls.Method(s.ServiceName, m.MethodName, nil))})
		}
		for i, m := range s.Streams {
			m.Handler = l.stream(s.ServiceName, i, l.Calls.Method(s.ServiceName, m.StreamName, &m))
			late.Streams = append(late.Streams, m)
		}
		to.RegisterService(late, nil)
	}
}

// Own returns the server's own service with a name. It returns false if that service does not
// answer at present, or does not exist.
func (l *Services) Own(name string) (*grpc.ServiceDesc, any, bool) {
	serving := l.serving.Load()
	if serving == nil || !l.Ready() {
		return nil, nil, false
	}
	s, ok := (*serving)[name]
	return s.description, s.implementation, ok
}

// Find returns the service that answers at present, with its description.
func (l *Services) Find(name string) (*grpc.ServiceDesc, any, error) {
	if description, service, ok := l.Own(name); ok {
		return description, service, nil
	}
	if substitute := l.substitutes[name]; substitute != nil {
		return substitute, nil, nil
	}
	return nil, nil, status.Errorf(codes.Unimplemented, "unknown service %s", name)
}

func (l *Services) method(
	name string, at int, counts *etcdmetrics.Method,
) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (_ any, err error) {
		ended := counts.Begin()
		defer func() { ended(err) }()
		l.running.Add(1)
		defer l.running.Add(-1)
		description, implementation, err := l.Find(name)
		if err != nil {
			return nil, err
		}
		ctx, traced := l.Spans.Call(ctx, name+"/"+description.Methods[at].MethodName)
		defer func() { traced(err) }()
		known, err := l.Client(ctx)
		if err != nil {
			_ = grpc.SetTrailer(ctx, forward.NotServed())
			return nil, err
		}
		return description.Methods[at].Handler(implementation, known, decode, interceptor)
	}
}

func (l *Services) stream(
	name string, at int, counts *etcdmetrics.Method,
) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) (err error) {
		ended := counts.Begin()
		defer func() { ended(err) }()
		description, implementation, err := l.Find(name)
		if err != nil {
			return err
		}
		ctx, traced := l.Spans.Stream(stream.Context(), name+"/"+description.Streams[at].StreamName)
		defer func() { traced(err) }()
		ctx, err = l.Client(ctx)
		if err != nil {
			stream.SetTrailer(forward.NotServed())
			return err
		}
		return description.Streams[at].Handler(implementation, counts.Stream(ctx, stream))
	}
}

// Begin makes the services that add registers answer calls from now on. Their descriptions have the
// same methods, in the same order, as the descriptions given to Register.
func (l *Services) Begin(add func(grpc.ServiceRegistrar)) {
	serving := make(registrar)
	add(serving)
	all := map[string]service(serving)
	l.serving.Store(&all)
}

// End makes the substitutes answer calls from now on.
func (l *Services) End() { l.serving.Store(nil) }

// Serving reports whether calls go to the server's own services, if these can answer.
func (l *Services) Serving() bool { return l.serving.Load() != nil }

// Running returns the number of unary calls under way.
func (l *Services) Running() int64 { return l.running.Load() }

// registrar collects services.
type registrar map[string]service

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(d *grpc.ServiceDesc, implementation any) {
	r[d.ServiceName] = service{d, implementation}
}
