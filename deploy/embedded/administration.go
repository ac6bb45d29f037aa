package embedded

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server"
)

// The methods of the service Cluster that change something are for administrators while
// authentication is enabled: users with the role root, who are known as in the etcd API. A member
// of the core judges by its part of the coordination store, whether it leads or passes the call on.
// A server that is none passes on the token that came, and the member that gets the call judges.

// administration are these methods. The others show what there is, but for SetConsumer, which
// belongs to the reading of data.
var administration = []string{"CreateKeyspace", "DropKeyspace", "AlterKeyspace", "MoveReplica",
	"CancelOperator", "TransferLeader", "SplitPartition", "MergePartition", "SetNodeStatus",
	"SetPlacement", "ConfirmRecovery", "ChangeCore", "DeleteConsumer"}

// tokenField is where the metadata of a call has a token.
const tokenField = "token"

// clusterRegistrar registers the service Cluster with a judge before what administers.
type clusterRegistrar struct {
	grpc.ServiceRegistrar
	server *Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (r clusterRegistrar) RegisterService(description *grpc.ServiceDesc, service any) {
	guarded := *description
	guarded.Methods = slices.Clone(description.Methods)
	for i := range guarded.Methods {
		if m := &guarded.Methods[i]; slices.Contains(administration, m.MethodName) {
			m.Handler = r.server.judged(m.Handler)
		}
	}
	r.ServiceRegistrar.RegisterService(&guarded, service)
}

// judged calls a method if the caller may. What all calls of the server pass comes first.
func (s *Server) judged(handler grpc.MethodHandler) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		return handler(service, ctx, decode, func(ctx context.Context, request any,
			info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			judged := func(ctx context.Context, request any) (any, error) {
				return s.administer(ctx, info.FullMethod, request, next)
			}
			if interceptor == nil {
				return judged(ctx, request)
			}
			return interceptor(ctx, request, info, judged)
		})
	}
}

func (s *Server) administer(
	ctx context.Context, method string, request any, next grpc.UnaryHandler,
) (any, error) {
	s.parts.Lock()
	p := s.parts.core
	s.parts.Unlock()
	if p == nil {
		token := ""
		if given := metadata.ValueFromIncomingContext(ctx, tokenField); len(given) > 0 {
			token = given[0]
		}
		return next(withToken(server.PassOn(ctx), token), request)
	}
	if services := p.coordination.services.Load(); services != nil {
		return services.Administration(ctx, method, request,
			func(ctx context.Context, token string) (any, error) {
				return next(withToken(ctx, token), request)
			})
	}
	founding, err := server.CoordinationFounding(p.store)
	switch {
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "whether authentication is enabled is not known: "+
			"%v", err)
	case founding != nil && !s.config.withoutCoordination:
		return nil, status.Error(codes.Unavailable, "whether authentication is enabled is not known "+
			"yet: this server's part of the coordination store is not open")
	}
	return next(ctx, request) // without the store there are no users
}

// withToken has a call that is passed on say who the client is.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, tokenField, token)
}
