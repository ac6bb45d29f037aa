package authorize

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// Refusals for lack of permission, and administration, are logged with audit=true: user, address,
// request and result. Passwords, hashes, tokens and values are never logged. Every successful
// administrative call has a line. Lines for unsuccessful calls are bounded, because any client can
// cause them; administrative calls have a bound of their own, so that other calls do not hide them.

// maxAudited bounds the bytes of each name, key and text in a line.
const maxAudited = 256

// cut returns the beginning of a text, at most maxAudited bytes.
func cut(text string) string { return text[:min(len(text), maxAudited)] }

// Call is the guard's record of a call.
type Call struct {
	// Method is the full name of the method.
	Method string
	// Request is nil until it is decoded, and for streams.
	Request any
	// administers is set if the method administers although it does not belong to the etcd API.
	administers bool
	mu          struct {
		sync.Mutex
		// by is the user that made it, if known.
		by identity
	}
}

type callKey struct{}

// WithCall returns a context in which the client's identification notes the user in c.
func WithCall(ctx context.Context, c *Call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

// callOf returns the Call of a context; nil for a call that did not pass the guard.
func callOf(ctx context.Context) *Call {
	c, _ := ctx.Value(callKey{}).(*Call)
	return c
}

// note notes the user of a call. It does nothing for nil, a call that did not pass the guard.
func (c *Call) note(by identity) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.by = by
}

func (c *Call) by() identity {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.by
}

// ErrPasswordForNone is etcd's answer to a password for a user that has none.
var ErrPasswordForNone = status.Error(codes.Unknown,
	"auth: authentication failed, password was given for no password user")

// refusalOf reports whether a call was refused for lack of permission, and why.
func refusalOf(err error) (reason string, refused bool) {
	switch s := status.Convert(err); {
	case err == nil:
		return "", false
	case s.Code() == codes.PermissionDenied:
		return "permission", true
	case s.Code() == codes.Unauthenticated:
		return "token", true
	case s.Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty):
		return "unidentified", true
	case s.Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed),
		s.Message() == status.Convert(ErrPasswordForNone).Message():
		return "password", true
	}
	return "", false
}

// administers lists the administrative methods, by the ends of their names.
var administers = map[string]bool{
	"AuthEnable": true, "AuthDisable": true, "UserAdd": true, "UserDelete": true,
	"UserChangePassword": true, "UserGrantRole": true, "UserRevokeRole": true, "RoleAdd": true,
	"RoleDelete": true, "RoleGrantPermission": true, "RoleRevokePermission": true,
	"MemberAdd": true, "MemberRemove": true, "MemberUpdate": true, "MemberPromote": true,
	"MoveLeader": true, "Snapshot": true, "Grant": true, "Revoke": true,
}

// Audit logs and counts the result of a call.
func (a *Authorizer) Audit(ctx context.Context, c *Call, err error) {
	reason, refused := refusalOf(err)
	administered := c.administers || administers[c.Method[strings.LastIndexByte(c.Method, '/')+1:]]
	if refused {
		a.metrics.refusals.WithLabelValues(reason).Inc()
	}
	if administered {
		a.metrics.administered(err)
	}
	if !refused && !administered {
		return
	}
	outcome, level := "done", slog.LevelInfo
	switch {
	case refused:
		outcome, level = "refused", slog.LevelWarn
	case err != nil:
		outcome = "failed"
	}
	omitted := 0
	if err != nil {
		limit, ok := &a.refused, false
		if administered {
			limit = &a.unadministered
		}
		if omitted, ok = limit.take(a.now()); !ok {
			return
		}
	}
	by := c.by()
	user := slog.String("user", cut(by.info.GetUser()))
	if by.certificate {
		user.Key = "certificate"
	}
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("outcome", outcome),
		slog.String("method", c.Method), user}
	if from, ok := peer.FromContext(ctx); ok && from.Addr != nil {
		attrs = append(attrs, slog.String("address", from.Addr.String()))
	}
	attrs = append(attrs, about(c.Request)...)
	if err != nil {
		attrs = append(attrs, slog.String("error", cut(status.Convert(err).Message())))
	}
	if omitted > 0 {
		attrs = append(attrs, slog.Int("others", omitted))
	}
	a.logger.LogAttrs(ctx, level, "etcd API: "+outcome, attrs...)
}

// AuditPart logs and counts a refusal that ends only a part of a call, such as one request of a
// stream, so that the guard does not see it.
func (a *Authorizer) AuditPart(ctx context.Context, request any, err error) {
	if c := callOf(ctx); c != nil {
		part := &Call{Method: c.Method, Request: request}
		part.note(c.by())
		a.Audit(ctx, part, err)
	}
}

// NoteUser notes the user that a client claims to be before that is proved.
func NoteUser(ctx context.Context, name string) {
	callOf(ctx).note(identity{info: &storepb.AuthInfo{User: name}})
}

// about describes a request, without its secrets.
func about(request any) []slog.Attr {
	var attrs []slog.Attr
	add := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, cut(value)))
		}
	}
	between := func(key, end []byte) {
		add("key", string(key))
		add("range_end", string(end))
	}
	switch r := request.(type) {
	case *pb.RangeRequest:
		between(r.Key, r.RangeEnd)
	case *pb.PutRequest:
		between(r.Key, nil)
	case *pb.DeleteRangeRequest:
		between(r.Key, r.RangeEnd)
	case *pb.WatchCreateRequest:
		between(r.Key, r.RangeEnd)
	case *pb.AuthUserAddRequest:
		add("of", r.Name)
	case *pb.AuthUserDeleteRequest:
		add("of", r.Name)
	case *pb.AuthUserChangePasswordRequest:
		add("of", r.Name)
	case *pb.AuthUserGetRequest:
		add("of", r.Name)
	case *pb.AuthUserGrantRoleRequest:
		add("of", r.User)
		add("role", r.Role)
	case *pb.AuthUserRevokeRoleRequest:
		add("of", r.Name)
		add("role", r.Role)
	case *pb.AuthRoleAddRequest:
		add("role", r.Name)
	case *pb.AuthRoleDeleteRequest:
		add("role", r.Role)
	case *pb.AuthRoleGetRequest:
		add("role", r.Role)
	case *pb.AuthRoleGrantPermissionRequest:
		add("role", r.Name)
		add("permission", r.GetPerm().GetPermType().String())
		between(r.GetPerm().GetKey(), r.GetPerm().GetRangeEnd())
	case *pb.AuthRoleRevokePermissionRequest:
		add("role", r.Role)
		between(r.Key, r.RangeEnd)
	case *coordpb.GrantRequest:
		add("role", r.Role)
		add("permission", rightsOf(r.Rights))
		add("keyspace", r.GetKeys().GetKeyspace())
		between(r.GetKeys().GetStart(), r.GetKeys().GetEnd())
	case *coordpb.RevokeRequest:
		add("role", r.Role)
		add("permission", rightsOf(r.Rights))
		add("keyspace", r.GetKeys().GetKeyspace())
		between(r.GetKeys().GetStart(), r.GetKeys().GetEnd())
	case *coordpb.GetPermissionsRequest:
		add("role", r.Role)
	case interface { // of consumers
		GetKeyspace() string
		GetName() string
	}:
		add("keyspace", r.GetKeyspace())
		add("of", r.GetName())
	case interface{ GetName() string }: // of keyspaces
		add("of", r.GetName())
	case interface{ GetID() uint64 }: // of members
		attrs = append(attrs, slog.Uint64("id", r.GetID()))
	case interface{ GetID() int64 }: // of leases
		attrs = append(attrs, slog.Int64("id", r.GetID()))
	case interface{ GetPeerURLs() []string }:
		add("peer_urls", strings.Join(r.GetPeerURLs(), ","))
	}
	return attrs
}

// rightsOf returns the names of rights.
func rightsOf(r *coordpb.Rights) string {
	var names []string
	for _, of := range []struct {
		has  bool
		name string
	}{{r.GetRead(), "READ"}, {r.GetWrite(), "WRITE"}, {r.GetAdmin(), "ADMIN"}} {
		if of.has {
			names = append(names, of.name)
		}
	}
	return strings.Join(names, ",")
}
