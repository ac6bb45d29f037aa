package rpc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// maxKeptPermissions is the capacity up to which a stream keeps its buffer for permissions.
const maxKeptPermissions = 1 << 10

// authorizedFor is how long an authorized request may wait before it is carried out. Servers may
// lag this long behind changes of users and roles, and clients ask for no longer waits.
const authorizedFor = 10 * time.Second

var errTokenTooLong = status.Error(codes.InvalidArgument,
	fmt.Sprintf("a token has at most %d bytes", wire.MaxTokenBytes))

// authorizer asks the guard about the requests of one stream. A nil authorizer permits everything.
//
// INVARIANT: a refused request reaches neither Handle nor Take. A permitted request is authorized
// again when it is answered, or waits for at most authorizedFor before it is carried out. The
// answer to a request that needs no right reveals no keys (withoutKeys).
type authorizer struct {
	guard access.Guard
	// requiresAuth and permissions come from the configuration.
	requiresAuth func(*kvpb.Request) (requires, lasting bool, refusal *kvpb.Error)
	permissions  func(*kvpb.Request, []access.Permission) ([]access.Permission, *kvpb.Error)
	refused      map[access.Reason]*metric.Counter
	// identity is the present identity of the stream's client.
	identity atomic.Pointer[identified]
	// buffer holds the permissions of one request. Only the goroutine that reads may touch it.
	buffer []access.Permission

	// open holds, by id, the requests whose answers are checked: requests that are authorized again
	// when they are answered, and public ones. standing is their number.
	standing atomic.Int32
	mu       sync.Mutex
	open     map[uint64]openRequest // guarded by mu
}

// openRequest is a request whose answer is checked.
type openRequest struct {
	// public is set if the request needs no right. Otherwise needs lists the rights that it needs.
	public bool
	needs  []access.Permission
}

// identified holds a stream's credentials, and the client that they identify, which is looked up
// when first needed.
type identified struct {
	shown  access.Credentials
	once   sync.Once
	client access.Client
}

func newAuthorizer(c *BatchServerConfig, m *batchMetrics, from origin, token string) *authorizer {
	a := &authorizer{guard: c.Guard, requiresAuth: c.RequiresAuth, permissions: c.Permissions,
		refused: m.refused}
	shown := access.Credentials{Token: strings.Clone(token), Address: from.address}
	if c.CertificateUsers {
		shown.CertificateName = from.certificateName
	}
	a.identity.Store(&identified{shown: shown})
	return a
}

// show replaces the token. It does nothing if token is empty. Only the goroutine that reads may
// call it.
func (a *authorizer) show(token string) error {
	if len(token) > wire.MaxTokenBytes {
		return errTokenTooLong
	}
	if a == nil || token == "" {
		return nil
	}
	// The token aliases the message that brought it.
	shown := a.identity.Load().shown
	shown.Token = strings.Clone(token)
	a.identity.Store(&identified{shown: shown})
	return nil
}

// client returns the stream's client.
func (a *authorizer) client() access.Client {
	identity := a.identity.Load()
	identity.once.Do(func() { identity.client = a.guard.Client(identity.shown) })
	return identity.client
}

// may asks the guard. It returns nil if the client has all permissions.
func (a *authorizer) may(needs []access.Permission) *kvpb.Error {
	return a.toError(a.client().May(needs))
}

// toError converts an error of the guard for the client; nil stays nil.
func (a *authorizer) toError(err error) *kvpb.Error {
	if err == nil {
		return nil
	}
	// An error without a reason does not say whether the client may.
	reason, code := access.Unknown, kvpb.ErrorCode_ACCESS_UNKNOWN
	var e *access.Error
	if errors.As(err, &e) {
		switch e.Reason {
		case access.Unauthenticated:
			reason, code = e.Reason, kvpb.ErrorCode_UNAUTHENTICATED
		case access.Denied:
			reason, code = e.Reason, kvpb.ErrorCode_PERMISSION_DENIED
		}
	}
	a.refused[reason].Inc()
	return &kvpb.Error{Code: code, Message: err.Error()}
}

// refusal returns the answer to a request that the client may not make; nil if it may. Only the
// goroutine that reads may call it.
func (a *authorizer) refusal(q *kvpb.Request) *kvpb.Response {
	if !a.guard.Enabled() {
		return nil
	}
	requires, lasting, refusal := a.requiresAuth(q)
	switch {
	case refusal != nil:
	case requires:
		refusal = a.authorize(q, lasting)
	default:
		a.keep(q.Id, openRequest{public: true})
	}
	if refusal != nil {
		return &kvpb.Response{Id: q.Id, Error: refusal}
	}
	return nil
}

// authorize returns why the client may not make a request; nil if it may. If the client may do
// nothing, or everything, no permissions are listed.
func (a *authorizer) authorize(q *kvpb.Request, lasting bool) (refusal *kvpb.Error) {
	free, err := a.client().Standing()
	if err != nil {
		return a.toError(err)
	}
	if !free || lasting {
		needs, refusal := a.permissions(q, a.buffer[:0])
		defer a.keepBuffer(needs)
		switch {
		case refusal == nil && !free:
			refusal = a.may(needs)
		case refusal != nil && !free:
			refusal = withoutKeys(refusal)
		}
		if refusal != nil {
			return refusal
		}
		if lasting {
			a.keep(q.Id, openRequest{needs: slices.Clone(needs)})
		}
	}
	if most := uint64(authorizedFor.Microseconds()); !lasting &&
		(q.TimeoutMicros == 0 || q.TimeoutMicros > most) {
		q.TimeoutMicros = most
	}
	return nil
}

// keepBuffer clears the buffer of permissions, which alias a request, and keeps it for the next
// one.
func (a *authorizer) keepBuffer(needs []access.Permission) {
	clear(needs)
	if cap(needs) <= maxKeptPermissions {
		a.buffer = needs[:0]
	}
}

// keep registers a request whose answer must be checked.
func (a *authorizer) keep(id uint64, q openRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		a.open = make(map[uint64]openRequest)
	}
	if _, twice := a.open[id]; !twice {
		a.standing.Add(1)
	}
	a.open[id] = q
}

// authorizeReply checks an answer, authorizes its request again if it is registered for that, and
// returns the answer for the client. Any goroutine may call it.
func (a *authorizer) authorizeReply(r *kvpb.Response) *kvpb.Response {
	q, ok := a.kept(r.Id)
	if !ok && (r.Error != nil || r.GetChanges() == nil) || !a.guard.Enabled() {
		return r
	}
	refusal := errBeforeUsers
	switch {
	case ok && q.public && r.Error == nil:
		return r
	case ok && q.public:
		if free, err := a.client().Standing(); free && err == nil {
			return r
		}
		refusal = withoutKeys(r.Error)
	case ok:
		if refusal = a.may(q.needs); refusal == nil {
			return r
		}
	}
	return &kvpb.Response{Id: r.Id, Now: r.Now, ClockUntrusted: r.ClockUntrusted, Error: refusal}
}

// withoutKeys removes from an error what a client without rights must not see: bounds of
// partitions, and the text of an internal failure, which may contain keys.
func withoutKeys(e *kvpb.Error) *kvpb.Error {
	told := &kvpb.Error{Code: e.Code, Message: e.Message, Leader: e.Leader, Cause: e.Cause,
		RetryAfterMicros: e.RetryAfterMicros}
	switch e.Code {
	case kvpb.ErrorCode_NOT_LEADER, kvpb.ErrorCode_NO_QUORUM, kvpb.ErrorCode_PARTITION_NOT_FOUND,
		kvpb.ErrorCode_STALE_EPOCH, kvpb.ErrorCode_OVERLOADED, kvpb.ErrorCode_CLOCK_SKEW,
		kvpb.ErrorCode_QUOTA_EXCEEDED:
		// Their texts name keyspaces, partitions and nodes only.
	default:
		told.Message = "the request is refused (" + e.Code.String() + "); why is not shown to who may " +
			"not read the keyspace"
	}
	return told
}

// errBeforeUsers is the answer to a request that was accepted while requests needed no permissions,
// and is still held.
var errBeforeUsers = &kvpb.Error{Code: kvpb.ErrorCode_ACCESS_UNKNOWN, Message: "authentication " +
	"was enabled while the server held the request, so it was not authorized: ask again"}

// kept removes and returns a registered request; false if it is not registered.
func (a *authorizer) kept(id uint64) (openRequest, bool) {
	if a.standing.Load() == 0 {
		return openRequest{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	q, ok := a.open[id]
	if ok {
		delete(a.open, id)
		a.standing.Add(-1)
	}
	return q, ok
}
