package clusterauth

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/deploy/embedded/passedon"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/authorize"
	"github.com/tidemarkdb/tidemark/placement/server"
	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/placement/store/authority"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// administration lists the methods for administrators. All other methods only show something.
var administration = []string{"CreateKeyspace", "MoveReplica",
	"CancelOperator", "TransferLeader", "SplitPartition", "MergePartition", "SetNodeStatus",
	"SetPlacement", "Upgrade", "ConfirmRecovery", "ChangeCore",
	"CreateBackup", "ListBackups", "CancelBackup", "SetBackupSchedule", "ListBackupSchedules",
	"DeleteBackupSchedule", "Examine", "Collect"}

// ofKeyspaces are the methods about one keyspace, for users with rights for that keyspace.
var ofKeyspaces = map[string]struct {
	rights      uint32
	administers bool
}{
	"DropKeyspace":   {authority.KeyspaceAdmin, true},
	"AlterKeyspace":  {authority.KeyspaceAdmin, true},
	"DeleteConsumer": {authority.KeyspaceAdmin, true},
	// SetConsumer needs the same right as reading the changes of the consumer's keyspace.
	"SetConsumer": {authority.KeyspaceRead, false},
}

// showsKeys lists the methods whose answers contain keys of users. While authentication is enabled,
// callers see only keys that they may read or write. The stream ListPartitions is another such
// method.
var showsKeys = []string{"ListOperators", "Why", "ListEvents", "GetConsumer", "ListConsumers"}

// Judge checks the rights of clients before methods are called.
type Judge struct {
	// Member returns this server's member of the core, or nil, and the services of the etcd API, which
	// have the users. The services are nil in a cluster without a coordination store, and so without
	// users. An error says why users are not known at the moment.
	Member func() (*server.Server, *etcdapi.Services, error)
	// Clients identifies the client of a forwarded call.
	Clients *passedon.Clients
}

// registrar registers the service Cluster with a judge before its methods.
type registrar struct {
	grpc.ServiceRegistrar
	judge *Judge
}

// Before returns a registrar that puts the judge before the methods of the service Cluster.
func (j *Judge) Before(to grpc.ServiceRegistrar) grpc.ServiceRegistrar { return registrar{to, j} }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(description *grpc.ServiceDesc, service any) {
	guarded := *description
	guarded.Methods = slices.Clone(description.Methods)
	guarded.Streams = slices.Clone(description.Streams)
	for i := range guarded.Streams {
		if m := &guarded.Streams[i]; m.StreamName == "ListPartitions" {
			handler := m.Handler
			m.Handler = func(service any, stream grpc.ServerStream) error {
				return handler(service, &streamAs{stream, r.judge.withSight(stream.Context())})
			}
		}
	}
	for i := range guarded.Methods {
		m := &guarded.Methods[i]
		if slices.Contains(administration, m.MethodName) {
			m.Handler = judged(m.Handler, r.judge.administer)
		}
		if of, ok := ofKeyspaces[m.MethodName]; ok {
			m.Handler = judged(m.Handler, func(ctx context.Context, method string, request any,
				next grpc.UnaryHandler) (any, error) {
				return r.judge.ofKeyspace(ctx, authorize.OfKeyspace{Method: method, Request: request,
					Rights: of.rights, Administers: of.administers}, next)
			})
		}
		if slices.Contains(showsKeys, m.MethodName) {
			m.Handler = judged(m.Handler, func(ctx context.Context, _ string, request any,
				next grpc.UnaryHandler) (any, error) {
				return next(r.judge.withSight(ctx), request)
			})
		}
	}
	r.ServiceRegistrar.RegisterService(&guarded, service)
}

// judged wraps a method with a check. The interceptors of the server come first.
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

// asks reports whether a call of one of these methods changes nothing. A SetPlacement without a
// change returns the settings, and an empty upgrade request returns the progress, which every
// client may see.
func asks(request any) bool {
	switch r := request.(type) {
	case *clusterpb.SetPlacementRequest:
		return proto.Size(r.GetChange()) == 0
	case *clusterpb.UpgradeRequest:
		return proto.Size(r) == 0
	}
	return false
}

func (j *Judge) administer(
	ctx context.Context, method string, request any, next grpc.UnaryHandler,
) (any, error) {
	p, services, err := j.Member()
	switch {
	case err != nil:
		return nil, err
	case p == nil:
		return next(j.Clients.WithClient(server.PassOn(ctx)), request)
	case services == nil || asks(request):
		return next(ctx, request)
	}
	return services.Administration(ctx, method, request,
		func(ctx context.Context, token string) (any, error) {
			return next(passedon.WithToken(ctx, token), request)
		})
}

// judgeTimeout limits how long a member waits to confirm that it leads, and so decides.
const judgeTimeout = 2 * time.Second

// ofKeyspace checks a call about a keyspace, if this server's member of the core leads. Otherwise
// the call is forwarded, and the leader checks it.
func (j *Judge) ofKeyspace(
	ctx context.Context, of authorize.OfKeyspace, next grpc.UnaryHandler,
) (any, error) {
	p, services, err := j.Member()
	if p == nil {
		return next(j.Clients.WithClient(server.PassOn(ctx)), of.Request)
	}
	limited, cancel := context.WithTimeout(ctx, judgeTimeout)
	on, unknown := p.Guarded(limited)
	cancel()
	switch {
	case unknown != nil && coreclient.IsForwarded(ctx):
		return nil, unknown
	case unknown != nil:
		return next(j.Clients.WithClient(server.PassOn(ctx)), of.Request)
	case !on && !of.Administers:
		// Such calls are frequent, and where servers never had to follow users the check costs
		// nothing.
		return next(ctx, of.Request)
	case err != nil:
		return nil, err
	case services == nil:
		return next(ctx, of.Request)
	}
	of.ID = func(ctx context.Context) (uint64, error) {
		return p.Keyspaces().ID(ctx, keyspaceOf(of.Request))
	}
	return services.ForKeyspace(ctx, of, func(ctx context.Context, id uint64) (any, error) {
		// If another member leads by now, the call is forwarded, and checked again there.
		return next(j.Clients.WithClient(meta.ForKeyspace(ctx, id)), of.Request)
	})
}

// streamAs is a stream with another context.
type streamAs struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s *streamAs) Context() context.Context { return s.ctx }

// withSight returns the context of a call whose answer contains keys of users. It determines which
// keys the caller may see in answers made here. For forwarded calls the leader does that. If the
// rights are not known in time, the answer contains no keys.
func (j *Judge) withSight(ctx context.Context) context.Context {
	ctx = j.Clients.WithClient(ctx)
	p, services, err := j.Member()
	if p == nil && err == nil {
		return ctx // the call is forwarded
	}
	limited, cancel := context.WithTimeout(ctx, judgeTimeout)
	defer cancel()
	on, unknown := false, error(nil)
	if err == nil {
		on, unknown = p.Guarded(limited)
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

// Viewer returns the viewer of a client that follows the partition table. A server that cannot
// prove to be a server counts as a client.
func Viewer(ctx context.Context, by access.Guard, certificateUsers bool) *veil.Viewer {
	shown := access.Credentials{Token: passedon.First(ctx, passedon.TokenField)}
	if state := authn.TLSOfCall(ctx); certificateUsers && state != nil &&
		len(state.VerifiedChains) > 0 {
		shown.CertificateName = state.VerifiedChains[0][0].Subject.CommonName
	}
	return veil.NewViewer(by, shown)
}

// rightsSight shows a user the keys that the user may read or write, and an administrator of a
// keyspace all of it.
type rightsSight struct{ of *authority.Rights }

// Key implements veil.Sight.
func (r rightsSight) Key(keyspace keys.KeyspaceID, key []byte) bool {
	id := uint64(keyspace)
	return r.of.MayKey(authority.KeyspaceRead, id, key) ||
		r.of.MayKey(authority.KeyspaceWrite, id, key) ||
		r.of.May(authority.KeyspaceAdmin, id, nil, nil)
}

// Span implements veil.Sight.
func (r rightsSight) Span(keyspace keys.KeyspaceID, start, end []byte) bool {
	id := uint64(keyspace)
	if len(end) == 0 {
		end = nil
	}
	return r.of.May(authority.KeyspaceRead, id, start, end) ||
		r.of.May(authority.KeyspaceWrite, id, start, end) ||
		r.of.May(authority.KeyspaceAdmin, id, nil, nil)
}

// keyspaceOf returns the name of the keyspace that a request is about.
func keyspaceOf(request any) string {
	switch r := request.(type) {
	case interface{ GetKeyspace() string }:
		return r.GetKeyspace()
	case interface{ GetName() string }:
		return r.GetName()
	}
	return ""
}
