package embedded

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/deploy/embedded/etcdmetrics"
	"github.com/tidemarkdb/tidemark/deploy/embedded/forward"
)

// lateServices are gRPC services that are registered before this server's own part of them is
// there. While the part is not there, others answer in its place.
type lateServices struct {
	// others are the services that answer while this server's own do not, by their names; they need
	// no service value. register makes them.
	others map[string]*grpc.ServiceDesc
	// otherwise makes the description of one of the others, with the methods of the given one in the
	// same order. It is set before register is called.
	otherwise func(*grpc.ServiceDesc) *grpc.ServiceDesc
	// client is the context of a call with what is known of its client; or why the call is refused
	// before anything is done. It is set before anything is served.
	client func(context.Context) (context.Context, error)
	// ready says that this server's own services can answer, once they are there. It is set before
	// begin is called.
	ready func() bool
	// serving are this server's own services, by their names; nil: they are not there.
	serving atomic.Pointer[map[string]lateService]
	// calls counts calls for the metrics of etcd; nil: nothing does. It is set before register is
	// called.
	calls *etcdmetrics.Calls
	// running counts the calls of one request and one answer that are under way.
	running atomic.Int64
}

// lateService is one that serves.
type lateService struct {
	description *grpc.ServiceDesc
	service     any
}

// register registers the services, for which this server's own may be registered by begin.
func (l *lateServices) register(to grpc.ServiceRegistrar, services ...*grpc.ServiceDesc) {
	if l.others == nil {
		l.others = make(map[string]*grpc.ServiceDesc)
	}
	for _, s := range services {
		if l.others[s.ServiceName] == nil {
			l.others[s.ServiceName] = l.otherwise(s)
		}
		late := &grpc.ServiceDesc{ServiceName: s.ServiceName, Metadata: s.Metadata}
		for i, m := range s.Methods {
			late.Methods = append(late.Methods, grpc.MethodDesc{MethodName: m.MethodName,
				Handler: l.method(s.ServiceName, i, l.calls.Method(s.ServiceName, m.MethodName, nil))})
		}
		for i, m := range s.Streams {
			m.Handler = l.stream(s.ServiceName, i, l.calls.Method(s.ServiceName, m.StreamName, &m))
			late.Streams = append(late.Streams, m)
		}
		to.RegisterService(late, nil)
	}
}

// own gives this server's own service of a name; false: it does not answer, at present or ever.
func (l *lateServices) own(name string) (*grpc.ServiceDesc, any, bool) {
	serving := l.serving.Load()
	if serving == nil || !l.ready() {
		return nil, nil, false
	}
	s, ok := (*serving)[name]
	return s.description, s.service, ok
}

// describe gives the service that answers, with its description.
func (l *lateServices) describe(name string) (*grpc.ServiceDesc, any, error) {
	if description, service, ok := l.own(name); ok {
		return description, service, nil
	}
	if other := l.others[name]; other != nil {
		return other, nil, nil
	}
	return nil, nil, status.Errorf(codes.Unimplemented, "unknown service %s", name)
}

func (l *lateServices) method(
	service string, at int, counts *etcdmetrics.Method,
) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (_ any, err error) {
		ended := counts.Begin()
		defer func() { ended(err) }()
		l.running.Add(1)
		defer l.running.Add(-1)
		description, implementation, err := l.describe(service)
		if err != nil {
			return nil, err
		}
		known, err := l.client(ctx)
		if err != nil {
			_ = grpc.SetTrailer(ctx, forward.NotServed())
			return nil, err
		}
		return description.Methods[at].Handler(implementation, known, decode, interceptor)
	}
}

func (l *lateServices) stream(
	service string, at int, counts *etcdmetrics.Method,
) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) (err error) {
		ended := counts.Begin()
		defer func() { ended(err) }()
		description, implementation, err := l.describe(service)
		if err != nil {
			return err
		}
		ctx, err := l.client(stream.Context())
		if err != nil {
			stream.SetTrailer(forward.NotServed())
			return err
		}
		return description.Streams[at].Handler(implementation, counts.Stream(ctx, stream))
	}
}

// begin has calls served from now on by what add registers. Its descriptions have the methods, in
// the order, of those with which register was called.
func (l *lateServices) begin(add func(grpc.ServiceRegistrar)) {
	serving := make(lateRegistrar)
	add(serving)
	all := map[string]lateService(serving)
	l.serving.Store(&all)
}

// end has the others answer calls from now on.
func (l *lateServices) end() { l.serving.Store(nil) }

// lateRegistrar collects services.
type lateRegistrar map[string]lateService

// RegisterService implements grpc.ServiceRegistrar.
func (r lateRegistrar) RegisterService(d *grpc.ServiceDesc, service any) {
	r[d.ServiceName] = lateService{d, service}
}
