package embedded

import (
	"context"
	"crypto/tls"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/membership"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The methods of the service Cluster that change something are for administrators while
// authentication is enabled: users with the role root, who are known as in the etcd API; or, if
// they are about one keyspace, users that have rights for it. A member of the core judges by its
// part of the coordination store, whether it leads or passes the call on; whether a user has rights
// for a keyspace is judged by the member that leads. A server that is no member passes on the token
// that came, or the name of the certificate, and the member that gets the call judges.

// administration are these methods. The others show what there is.
var administration = []string{"CreateKeyspace", "MoveReplica",
	"CancelOperator", "TransferLeader", "SplitPartition", "MergePartition", "SetNodeStatus",
	"SetPlacement", "ConfirmRecovery", "ChangeCore"}

// ofKeyspaces are the methods that are about one keyspace.
var ofKeyspaces = map[string]struct {
	rights      uint32
	administers bool
}{
	"DropKeyspace":   {authority.KeyspaceAdmin, true},
	"AlterKeyspace":  {authority.KeyspaceAdmin, true},
	"DeleteConsumer": {authority.KeyspaceAdmin, true},
	// It goes with reading the changes that the consumer is of.
	"SetConsumer": {authority.KeyspaceRead, false},
}

// showsKeys are the methods whose answers have keys of users: the caller is shown those that the
// caller may read or write, while authentication is enabled. So does ListPartitions, a stream.
var showsKeys = []string{"ListOperators", "Why", "ListEvents", "GetConsumer", "ListConsumers"}

const (
	// tokenField is where the metadata of a call has a token.
	tokenField = "token"
	// certificateField is where a server that passes on a call says what the common name of the
	// client's certificate is.
	certificateField = "tidemark-certificate-bin"
)

// clusterRegistrar registers the service Cluster with a judge before what administers.
type clusterRegistrar struct {
	grpc.ServiceRegistrar
	server *Server
}

// RegisterService implements grpc.ServiceRegistrar.
func (r clusterRegistrar) RegisterService(description *grpc.ServiceDesc, service any) {
	guarded := *description
	guarded.Methods = slices.Clone(description.Methods)
	guarded.Streams = slices.Clone(description.Streams)
	for i := range guarded.Streams {
		if m := &guarded.Streams[i]; m.StreamName == "ListPartitions" {
			handler := m.Handler
			m.Handler = func(service any, stream grpc.ServerStream) error {
				return handler(service, &streamAs{stream, r.server.withSight(stream.Context())})
			}
		}
	}
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		if slices.Contains(administration, m.MethodName) {
			m.Handler = judged(m.Handler, r.server.administer)
		}
		if of, ok := ofKeyspaces[m.MethodName]; ok {
			m.Handler = judged(m.Handler, func(ctx context.Context, method string, request any,
				next grpc.UnaryHandler) (any, error) {
				return r.server.ofKeyspace(ctx, authorize.OfKeyspace{Method: method, Request: request,
					Rights: of.rights, Administers: of.administers}, next)
			})
		}
		if slices.Contains(showsKeys, m.MethodName) {
			m.Handler = judged(m.Handler, func(ctx context.Context, _ string, request any,
				next grpc.UnaryHandler) (any, error) {
				return next(r.server.withSight(ctx), request)
			})
		}
	}
	r.ServiceRegistrar.RegisterService(&guarded, service)
}

// judged has a method judged before it is called. What all calls of the server pass comes first.
func judged(handler grpc.MethodHandler, judge func(ctx context.Context, method string, request any,
	next grpc.UnaryHandler) (any, error)) grpc.MethodHandler {
	return func(service any, ctx context.Context, decode func(any) error,
		interceptor grpc.UnaryServerInterceptor) (any, error) {
		return handler(service, ctx, decode, func(ctx context.Context, request any,
			info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			judged := func(ctx context.Context, request any) (any, error) {
				return judge(ctx, info.FullMethod, request, next)
			}
			if interceptor == nil {
				return judged(ctx, request)
			}
			return interceptor(ctx, request, info, judged)
		})
	}
}

// asks says that a call of one of these methods changes nothing. A change of placement without a
// change asks what the settings are, which every client may know.
func asks(request any) bool {
	r, ok := request.(*clusterpb.SetPlacementRequest)
	return ok && proto.Size(r.GetChange()) == 0
}

func (s *Server) administer(
	ctx context.Context, method string, request any, next grpc.UnaryHandler,
) (any, error) {
	p, services, err := s.judges()
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return next(s.withClient(server.PassOn(ctx)), request)
	case services == nil || asks(request):
		return next(ctx, request)
	}
	return services.Administration(ctx, method, request,
		func(ctx context.Context, token string) (any, error) {
			return next(withToken(ctx, token), request)
		})
}

// judgeTimeout is for how long a member waits to know that it leads, and so judges.
const judgeTimeout = 2 * time.Second

// ofKeyspace judges a call about a keyspace, if this server's member of the core leads. It is
// passed on otherwise, to be judged there.
func (s *Server) ofKeyspace(
	ctx context.Context, of authorize.OfKeyspace, next grpc.UnaryHandler,
) (any, error) {
	p, services, err := s.judges()
	if p == nil {
		return next(s.withClient(server.PassOn(ctx)), of.Request)
	}
	limited, cancel := context.WithTimeout(ctx, judgeTimeout)
	on, unknown := p.server.Guarded(limited)
	cancel()
	switch {
	case unknown != nil && coreclient.IsForwarded(ctx):
		return nil, unknown
	case unknown != nil:
		return next(s.withClient(server.PassOn(ctx)), of.Request)
	case !on && !of.Administers:
		// It is frequent, and where servers never had to follow users they cost it nothing.
		return next(ctx, of.Request)
	case err != nil:
		return nil, err
	case services == nil:
		return next(ctx, of.Request)
	}
	of.ID = func(ctx context.Context) (uint64, error) {
		return p.server.Keyspaces().ID(ctx, keyspaceOf(of.Request))
	}
	return services.ForKeyspace(ctx, of, func(ctx context.Context, id uint64) (any, error) {
		// If another member leads by now, it is passed on, and judged again.
		return next(s.withClient(meta.ForKeyspace(ctx, id)), of.Request)
	})
}

// streamAs is a stream with another context.
type streamAs struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamAs) Context() context.Context { return s.ctx }

// withSight is the context of a call whose answer has keys of users. Which of them the caller may
// be shown is judged here for what is answered here, and by the leader for what is passed on to it.
// Where it is not known in time, the answer has no keys, and is given all the same.
func (s *Server) withSight(ctx context.Context) context.Context {
	ctx = s.withClient(ctx)
	p, services, err := s.judges()
	if p == nil && err == nil {
		return ctx // it is passed on
	}
	limited, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	on, unknown := false, error(nil)
	if err == nil {
		on, unknown = p.server.Guarded(limited)
	}
	switch {
	case err == nil && unknown == nil && !on:
		return ctx
	case err != nil || unknown != nil || services == nil:
		return veil.WithSight(ctx, veil.Blind{})
	}
	rights, all, err := services.RightsOf(limited)
	switch {
	case err != nil:
		return veil.WithSight(ctx, veil.Blind{})
	case all:
		return ctx
	}
	return veil.WithSight(ctx, rightsSight{rights})
}

// viewer is the client that calls, for what follows the partition table. A server that cannot prove
// that it is one is a client there.
func viewer(ctx context.Context, by access.Guard, certificateUsers bool) *veil.Viewer {
	shown := access.Credentials{Token: firstOf(ctx, tokenField)}
	if state := authn.TLSOfCall(ctx); certificateUsers && state != nil &&
		len(state.VerifiedChains) > 0 {
		shown.CertificateName = state.VerifiedChains[0][0].Subject.CommonName
	}
	return veil.NewViewer(by, shown)
}

// rightsSight shows a user the keys that the user may read or write, and an administrator of a
// keyspace all of it.
type rightsSight struct{ of *authority.Rights }

// Key implements server.Sight.
func (r rightsSight) Key(keyspace keys.KeyspaceID, key []byte) bool {
	id := uint64(keyspace)
	return r.of.MayKey(authority.KeyspaceRead, id, key) ||
		r.of.MayKey(authority.KeyspaceWrite, id, key) ||
		r.of.May(authority.KeyspaceAdmin, id, nil, nil)
}

// Span implements server.Sight.
func (r rightsSight) Span(keyspace keys.KeyspaceID, start, end []byte) bool {
	id := uint64(keyspace)
	if len(end) == 0 {
		end = nil
	}
	return r.of.May(authority.KeyspaceRead, id, start, end) ||
		r.of.May(authority.KeyspaceWrite, id, start, end) ||
		r.of.May(authority.KeyspaceAdmin, id, nil, nil)
}

// keyspaceOf is the name of the keyspace that a request is about.
func keyspaceOf(request any) string {
	switch r := request.(type) {
	case interface{ GetKeyspace() string }:
		return r.GetKeyspace()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}

// judges gives what judges calls: nil without a member of the core here, and no services without a
// coordination store, in a cluster that has no users.
func (s *Server) judges() (*corePart, *etcdapi.Services, error) {
	s.parts.Lock()
	p := s.parts.core
	s.parts.Unlock()
	if p == nil {
		return nil, nil, nil
	}
	if services := p.coordination.services.Load(); services != nil {
		return p, services, nil
	}
	founding, err := membership.CoordinationFounding(p.store)
	switch {
	case err != nil:
		return p, nil, status.Errorf(codes.Unavailable,
			"whether authentication is enabled is not known: %v", err)
	case founding != nil && !s.config.withoutCoordination:
		return p, nil, status.Error(codes.Unavailable, "whether authentication is enabled is not "+
			"known yet: this server's part of the coordination store is not open")
	}
	return p, nil, nil
}

// withToken has a call that is passed on name the client's user.
func withToken(ctx context.Context, token string) context.Context {
	if token == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, tokenField, token)
}

// withClient has a call that is passed on say what the client has shown.
func (s *Server) withClient(ctx context.Context) context.Context {
	if given := metadata.ValueFromIncomingContext(ctx, tokenField); len(given) > 0 {
		return withToken(ctx, given[0])
	}
	state := authn.TLSOfCall(ctx)
	if s.config.TLSCA == "" || state == nil || len(state.VerifiedChains) == 0 {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, certificateField,
		state.VerifiedChains[0][0].Subject.CommonName)
}

// etcdCallers says who makes a call of the etcd API, which another server may have passed on.
type etcdCallers struct{ server *Server }

// TLS implements authorize.Callers.
func (etcdCallers) TLS(ctx context.Context) *tls.ConnectionState { return authn.TLSOfCall(ctx) }

// Party implements authorize.Callers.
func (etcdCallers) Party(ctx context.Context) string { return authn.PrincipalOfCall(ctx) }

// PassedOn implements authorize.Callers.
func (c etcdCallers) PassedOn(ctx context.Context) (string, bool) {
	if client, ok := authn.ForwardedOfCall(ctx); ok {
		return client.CommonName, true
	}
	if !coreclient.IsForwarded(ctx) {
		return "", false
	}
	if !c.server.auth.provable() || c.server.auth.peers.Proved(ctx) != nil {
		return "", true // the certificate of the connection is not the client's
	}
	return firstOf(ctx, certificateField), true
}
