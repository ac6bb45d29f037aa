package embedded

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// lateServices are gRPC services that are registered before what serves them is there. Until it is,
// and when it is there no more, calls are refused.
type lateServices struct {
	// refuse is why a call of a method ("/service/method") is refused. It is set before anything is
	// served.
	refuse func(method string) error
	// instead is the answer to a call of a method that would be refused; nil: it is refused. It is
	// set before anything is served, or nil.
	instead func(method string) any
	// serving are those that serve, by the services' names; nil: none.
	serving atomic.Pointer[map[string]lateService]
}

// lateService is one that serves.
type lateService struct {
	description *grpc.ServiceDesc
	service     any
}

// register registers the services, for which anything may be registered by begin.
func (l *lateServices) register(to grpc.ServiceRegistrar, services ...*grpc.ServiceDesc) {
	for _, s := range services {
		late := &grpc.ServiceDesc{ServiceName: s.ServiceName, Metadata: s.Metadata}
		for i, m := range s.Methods {
			late.Methods = append(late.Methods, grpc.MethodDesc{MethodName: m.MethodName,
				Handler: l.method(s.ServiceName, m.MethodName, i)})
		}
		for i, m := range s.Streams {
			m.Handler = l.stream(s.ServiceName, m.StreamName, i)
			late.Streams = append(late.Streams, m)
		}
		to.RegisterService(late, nil)
	}
}

// find finds the service that serves a method.
func (l *lateServices) find(name, method string) (lateService, error) {
	serving := l.serving.Load()
	if serving == nil {
		return lateService{}, l.refuse("/" + name + "/" + method)
	}
	s, ok := (*serving)[name]
	if !ok {
		return s, status.Errorf(codes.Unimplemented, "unknown service %s", name)
	}
	return s, nil
}

// describe gives the service that serves, with its description.
func (l *lateServices) describe(name string) (*grpc.ServiceDesc, any, error) {
	s, err := l.find(name, "")
	return s.description, s.service, err
}

func (l *lateServices) method(service, method string, at int) grpc.MethodHandler {
	return func(_ any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		s, err := l.find(service, method)
		if err != nil {
			if l.instead != nil {
				if answer := l.instead("/" + service + "/" + method); answer != nil {
					return answer, nil
				}
			}
			return nil, err
		}
		return s.description.Methods[at].Handler(s.service, ctx, decode, interceptor)
	}
}

func (l *lateServices) stream(service, method string, at int) grpc.StreamHandler {
	return func(_ any, stream grpc.ServerStream) error {
		s, err := l.find(service, method)
		if err != nil {
			return err
		}
		return s.description.Streams[at].Handler(s.service, stream)
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

// end has calls refused from now on.
func (l *lateServices) end() { l.serving.Store(nil) }

// lateRegistrar collects services.
type lateRegistrar map[string]lateService

// RegisterService implements grpc.ServiceRegistrar.
func (r lateRegistrar) RegisterService(d *grpc.ServiceDesc, service any) {
	r[d.ServiceName] = lateService{d, service}
}
