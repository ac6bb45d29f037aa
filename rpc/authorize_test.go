package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/client"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/transport"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// fakeGuard knows users by their tokens, and which key prefix each may read and write.
type fakeGuard struct {
	off     atomic.Bool
	unknown atomic.Bool
	// free: clients may do everything, although the guard is enabled.
	free   atomic.Bool
	mu     sync.Mutex
	prefix map[string]string // by token; guarded by mu
	asked  atomic.Int64
}

func (g *fakeGuard) Enabled() bool { return !g.off.Load() }

func (g *fakeGuard) Client(shown access.Credentials) access.Client {
	name := shown.Token
	if name == "" {
		name = shown.CertificateName
	}
	return &fakeClient{g, name}
}

func (g *fakeGuard) permit(name, prefix string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.prefix == nil {
		g.prefix = make(map[string]string)
	}
	if delete(g.prefix, name); prefix != "" {
		g.prefix[name] = prefix
	}
}

type fakeClient struct {
	guard *fakeGuard
	name  string
}

func (c *fakeClient) Name() string { return c.name }

func (c *fakeClient) MayAny(uint64) bool { return c.May(nil) == nil }

func (c *fakeClient) Standing() (free bool, err error) {
	if c.guard.free.Load() {
		return true, nil
	}
	return false, c.May(nil)
}

func (c *fakeClient) May(needs []access.Permission) error {
	c.guard.asked.Add(1)
	if c.guard.unknown.Load() {
		return errors.New("nothing was heard")
	}
	c.guard.mu.Lock()
	prefix, known := c.guard.prefix[c.name]
	c.guard.mu.Unlock()
	if !known {
		return &access.Error{Reason: access.Unauthenticated, Text: c.name + " is not known"}
	}
	for i := range needs {
		if !bytes.HasPrefix(needs[i].Start, []byte(prefix)) {
			return &access.Error{Reason: access.Denied, Text: fmt.Sprintf("%s may not, %q", c.name,
				needs[i].Start)}
		}
	}
	return nil
}

// fakeRequiresAuth says that gets, puts, and changes need permissions.
func fakeRequiresAuth(q *kvpb.Request) (requires, lasting bool, refusal *kvpb.Error) {
	switch q.Command.(type) {
	case *kvpb.Request_Get, *kvpb.Request_Put, *kvpb.Request_MultiGet:
		return true, false, nil
	case *kvpb.Request_Changes:
		return true, true, nil
	}
	return false, false, nil
}

// fakePermissions are those of gets, puts, and changes.
func fakePermissions(q *kvpb.Request, needs []access.Permission) ([]access.Permission,
	*kvpb.Error) {
	switch c := q.Command.(type) {
	case *kvpb.Request_Get:
		if q.Partition == 666 {
			return needs, &kvpb.Error{Code: kvpb.ErrorCode_PARTITION_NOT_FOUND}
		}
		return append(needs, access.Permission{Keyspace: 1, Start: c.Get.Key, Right: access.Read}),
			nil
	case *kvpb.Request_Put:
		return append(needs, access.Permission{Keyspace: 1, Start: c.Put.Key,
			Right: access.Write}), nil
	case *kvpb.Request_MultiGet:
		for _, p := range c.MultiGet.Partitions {
			for _, key := range p.Keys {
				needs = append(needs, access.Permission{Keyspace: 1, Start: key,
					Right: access.Read})
			}
		}
		return needs, nil
	case *kvpb.Request_Changes:
		return append(needs, access.Permission{Keyspace: 1, Start: c.Changes.Start, End: []byte{},
			Right: access.Read}), nil
	}
	return needs, nil
}

func codeOf(t *testing.T, b *client.BatchConn, r *kvpb.Request) kvpb.ErrorCode {
	t.Helper()
	response, err := b.Do(background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return response.GetError().GetCode()
}

// A request that the client may not make does not reach the handler, and says why; the others of
// its message do. A token counts from the message on that brings it.
func TestRequestsAreAuthorized(t *testing.T) {
	for _, n := range networks(t) {
		var guard fakeGuard
		guard.permit("ann", "a/")
		var handled atomic.Int64
		addr, _ := n.serve(t, "s:1", func(s *Server) {
			s.ServeClients(NewBatchServer(BatchServerConfig{Guard: &guard,
				RequiresAuth: fakeRequiresAuth,
				Permissions:  fakePermissions,
				Handle: func(c uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
					handled.Add(int64(len(batch)))
					echoAll(c, batch, reply)
				}}))
		})
		var token atomic.Pointer[string]
		show := func(s string) { token.Store(&s) }
		show("")
		b := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) {
			c.Token = func(context.Context) string { return *token.Load() }
		})
		is := func(want kvpb.ErrorCode, r *kvpb.Request) {
			t.Helper()
			before := handled.Load()
			if got := codeOf(t, b, r); got != want {
				t.Errorf("%v: %v, want %v", r.Command, got, want)
			}
			if ran := handled.Load() > before; ran != (want == kvpb.ErrorCode_UNKNOWN_ERROR) {
				t.Errorf("%v: handled: %v", r.Command, ran)
			}
		}
		const fine = kvpb.ErrorCode_UNKNOWN_ERROR
		now := &kvpb.Request{Command: &kvpb.Request_Now{Now: &kvpb.NowRequest{}}}
		is(kvpb.ErrorCode_UNAUTHENTICATED, get("a/1"))
		is(fine, now)
		if err := b.Show("ann"); err != nil {
			t.Fatal(err)
		}
		is(fine, get("a/1"))
		is(fine, put("a/1", nil))
		is(kvpb.ErrorCode_PERMISSION_DENIED, get("b/1"))
		is(kvpb.ErrorCode_PERMISSION_DENIED, put("b/1", nil))
		missing := get("a/1")
		missing.Partition = 666
		is(kvpb.ErrorCode_PARTITION_NOT_FOUND, missing)
		guard.permit("ann", "b/") // on the connection that stands
		is(fine, get("b/1"))
		is(kvpb.ErrorCode_PERMISSION_DENIED, get("a/1"))
		guard.permit("ann", "")
		is(kvpb.ErrorCode_UNAUTHENTICATED, get("b/1"))
		guard.unknown.Store(true)
		is(kvpb.ErrorCode_ACCESS_UNKNOWN, get("b/1"))
		asked := guard.asked.Load()
		guard.off.Store(true)
		is(fine, get("b/1"))
		if guard.asked.Load() != asked {
			t.Error("the guard was asked while there are no users")
		}

		if err := b.Show(strings.Repeat("x", wire.MaxTokenBytes+1)); !errors.Is(err,
			client.ErrMessageTooLarge) {
			t.Errorf("a token that is too large: %v", err)
		}
	}
}

// The requests of one message are authorized each by its own keys.
func TestOneMessageIsAuthorizedRequestByRequest(t *testing.T) {
	n := network{}
	var guard fakeGuard
	guard.permit("ann", "a/")
	addr, _ := n.serve(t, "s:1", func(s *Server) {
		s.ServeClients(NewBatchServer(BatchServerConfig{Guard: &guard,
			RequiresAuth: fakeRequiresAuth,
			Permissions:  fakePermissions,
			Handle:       echoAll}))
	})
	b := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) {
		c.Token = func(context.Context) string { return "ann" }
	})
	codeOf(t, b, get("a/0"))
	calls := client.NewCalls(4)
	var requests []*kvpb.Request
	for _, key := range []string{"a/1", "b/1", "a/2", "b/2"} {
		requests = append(requests, get(key))
	}
	if taken, err := b.Submit(calls, []int{0, 1, 2, 3}, requests); taken != 4 || err != nil {
		t.Fatal(taken, err)
	}
	for range requests {
		i := <-calls.Done()
		response, err := calls.Outcome(i)
		if err != nil {
			t.Fatal(err)
		}
		if denied := response.Error.GetCode() == kvpb.ErrorCode_PERMISSION_DENIED; denied !=
			(i%2 == 1) {
			t.Errorf("request %d: %v", i, response)
		}
	}
}

// A request that is held is authorized again when it is answered: what is new since then is not for
// a client that has lost the permission.
func TestHeldRequestIsAuthorizedAgain(t *testing.T) {
	n := network{}
	var guard fakeGuard
	guard.permit("ann", "a/")
	held := make(chan func(), 8)
	addr, _ := n.serve(t, "s:1", func(s *Server) {
		s.ServeClients(NewBatchServer(BatchServerConfig{Guard: &guard,
			RequiresAuth: fakeRequiresAuth,
			Permissions:  fakePermissions,
			Handle: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
				for _, q := range batch {
					held <- func() {
						reply(&kvpb.Response{Id: q.Id, Result: &kvpb.Response_Changes{
							Changes: &kvpb.ChangesResponse{Changes: []*kvpb.Change{{Value: []byte("secret")}}}}})
					}
				}
			}}))
	})
	b := batchConn(t, n.dialer(t, "c"), addr, func(c *client.BatchConfig) {
		c.Token = func(context.Context) string { return "ann" }
	})
	ask := func(change func()) *kvpb.Response {
		t.Helper()
		answer := make(chan *kvpb.Response, 1)
		go func() {
			r, err := b.Do(background(), &kvpb.Request{Command: &kvpb.Request_Changes{
				Changes: &kvpb.ChangesRequest{Start: []byte("a/")}}})
			if err != nil {
				r = &kvpb.Response{Error: &kvpb.Error{Message: err.Error()}}
			}
			answer <- r
		}()
		answerIt := <-held
		change()
		answerIt()
		return <-answer
	}
	if r := ask(func() {}); r.Error != nil || len(r.GetChanges().GetChanges()) != 1 {
		t.Errorf("while it is permitted: %v", r)
	}
	if r := ask(func() { guard.permit("ann", "b/") }); r.Error.GetCode() !=
		kvpb.ErrorCode_PERMISSION_DENIED || r.Result != nil {
		t.Errorf("when it is permitted no more: %v", r)
	}
	guard.permit("ann", "a/")
	if r := ask(func() { guard.permit("ann", "") }); r.Error.GetCode() !=
		kvpb.ErrorCode_UNAUTHENTICATED {
		t.Errorf("when the user is gone: %v", r)
	}
}

// A request that came while requests needed no permissions, and was held until authentication was
// enabled, tells nothing.
func TestHeldRequestOfBeforeUsers(t *testing.T) {
	var guard fakeGuard
	guard.off.Store(true)
	a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions}, newBatchMetrics(nil), origin{},
		"")
	q := &kvpb.Request{Id: 1, Command: &kvpb.Request_Changes{Changes: &kvpb.ChangesRequest{}}}
	changes := &kvpb.Response{Id: 1, Result: &kvpb.Response_Changes{
		Changes: &kvpb.ChangesResponse{Changes: []*kvpb.Change{{Value: []byte("secret")}}}}}
	if r := a.refusal(q); r != nil {
		t.Fatal(r)
	}
	if r := a.authorizeReply(changes); r != changes {
		t.Errorf("while requests need no permissions: %v", r)
	}
	guard.off.Store(false)
	r := a.authorizeReply(changes)
	if r.Error.GetCode() != kvpb.ErrorCode_ACCESS_UNKNOWN || r.Result != nil {
		t.Errorf("when users are: %v", r)
	}
}

// The answer to a request that needs no right, as to one for the time, has no keys of others: no
// bounds of partitions, and no text of what has failed.
func TestPublicRequestsShowNoKeys(t *testing.T) {
	var guard fakeGuard
	guard.permit("ann", "a/")
	a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions}, newBatchMetrics(nil), origin{},
		"")
	answer := func(code kvpb.ErrorCode, text string) *kvpb.Error {
		q := &kvpb.Request{Id: 7, Command: &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{}}}
		if r := a.refusal(q); r != nil {
			t.Fatal(r)
		}
		return a.authorizeReply(&kvpb.Response{Id: 7, Error: &kvpb.Error{Code: code, Message: text,
			Leader:     &clusterpb.Leader{Node: 3},
			Partitions: []*clusterpb.Partition{{Id: 9, Start: []byte("secret")}},
			Conflict:   &kvpb.Conflict{Key: []byte("secret")}}}).Error
	}
	for code := range kvpb.ErrorCode_name {
		code := kvpb.ErrorCode(code)
		text := "partition 9 is elsewhere"
		switch code {
		case kvpb.ErrorCode_KEY_OUT_OF_SPAN, kvpb.ErrorCode_NODE_UNHEALTHY,
			kvpb.ErrorCode_REPLICA_DAMAGED, kvpb.ErrorCode_CORRUPTION:
			text = `the lock of "secret" cannot be read`
		}
		e := answer(code, text)
		if e.Code != code || e.Leader.GetNode() != 3 {
			t.Errorf("%s: the answer is %v", code, e)
		}
		if strings.Contains(e.String(), "secret") {
			t.Errorf("%s shows a key: %v", code, e)
		}
	}
	guard.free.Store(true)
	if e := answer(kvpb.ErrorCode_STALE_EPOCH, "text"); len(e.Partitions) != 1 {
		t.Errorf("to who may do everything: %v", e)
	}
	guard.free.Store(false)
	guard.off.Store(true)
	if e := answer(kvpb.ErrorCode_STALE_EPOCH, "text"); len(e.Partitions) != 1 {
		t.Errorf("without users: %v", e)
	}
	if n := a.standing.Load(); n != 0 {
		t.Errorf("%d requests are kept after their answers", n)
	}
}

// A lasting request whose client has lost the right hears that, and not what became of the request.
func TestErrorsOfLastingRequestsAreAuthorized(t *testing.T) {
	var guard fakeGuard
	guard.permit("ann", "a/")
	a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions}, newBatchMetrics(nil), origin{},
		"ann")
	q := &kvpb.Request{Id: 1, Command: &kvpb.Request_Changes{
		Changes: &kvpb.ChangesRequest{Start: []byte("a/")}}}
	if r := a.refusal(q); r != nil {
		t.Fatal(r)
	}
	guard.permit("ann", "b/")
	e := a.authorizeReply(&kvpb.Response{Id: 1, Error: &kvpb.Error{Code: kvpb.ErrorCode_STALE_EPOCH,
		Partitions: []*clusterpb.Partition{{Id: 9, Start: []byte("a/7")}}}}).Error
	if e.Code != kvpb.ErrorCode_PERMISSION_DENIED || e.Partitions != nil {
		t.Errorf("the answer is %v", e)
	}
}

// A request that was authorized once does not wait for long: by then its client may have lost the
// right.
func TestAuthorizedRequestsDoNotWaitForLong(t *testing.T) {
	var guard fakeGuard
	guard.permit("ann", "a/")
	a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions}, newBatchMetrics(nil), origin{},
		"ann")
	changes := &kvpb.Request{Command: &kvpb.Request_Changes{
		Changes: &kvpb.ChangesRequest{Start: []byte("a/")}}}
	for _, c := range []struct {
		q         *kvpb.Request
		off       bool
		has, want uint64
	}{
		{get("a/1"), false, 0, 10e6}, {put("a/1", nil), false, 0, 10e6},
		{put("a/1", nil), false, 1 << 63, 10e6}, {get("a/1"), false, 7, 7},
		{get("a/1"), true, 0, 0}, {changes, false, 0, 0},
	} {
		guard.off.Store(c.off)
		c.q.TimeoutMicros = c.has
		if r := a.refusal(c.q); r != nil {
			t.Fatal(r)
		}
		if c.q.TimeoutMicros != c.want {
			t.Errorf("%v waits for %d us, want %d", c.q, c.q.TimeoutMicros, c.want)
		}
	}
}

// The name of a certificate is a user's only where it is known which authority signs clients'
// certificates.
func TestCertificateUsers(t *testing.T) {
	for _, users := range []bool{true, false} {
		var guard fakeGuard
		guard.permit("ann", "a/")
		a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
			Permissions: fakePermissions, CertificateUsers: users},
			newBatchMetrics(nil), origin{certificateName: "ann"}, "")
		if may := a.refusal(get("a/1")) == nil; may != users {
			t.Errorf("users by certificates: %v; it may: %v", users, may)
		}
	}
}

// What servers ask needs no permissions, if the connection shows that it is one of a server.
func TestServersAreNotAuthorized(t *testing.T) {
	var guard fakeGuard
	secret := transport.Secret("0123456789abcdef0123456789abcdef")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(ServerConfig{Peers: &authn.PeerPolicy{Secret: secret}})
	s.ServeClients(NewBatchServer(BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions,
		Handle:      echoAll}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() { s.Stop(); <-done })
	connect := func(secret transport.Secret, server bool) *client.BatchConn {
		d := client.NewDialer(client.DialerConfig{Secret: secret})
		t.Cleanup(func() { _ = d.Close() })
		return batchConn(t, d, l.Addr().String(), func(c *client.BatchConfig) {
			c.Server, c.Client = server, uint64(time.Now().UnixNano())
		})
	}
	if got := codeOf(t, connect(secret, true), get("a/1")); got != kvpb.ErrorCode_UNKNOWN_ERROR {
		t.Errorf("a server's request: %v", got)
	}
	if got := codeOf(t, connect(nil, false), get("a/1")); got != kvpb.ErrorCode_UNAUTHENTICATED {
		t.Errorf("a client's request: %v", got)
	}
	_, err = connect(nil, true).Do(background(), get("a/1"))
	if broken := new(client.ErrStreamBroken); !errors.As(err, &broken) ||
		status.Code(broken.Cause) != codes.PermissionDenied {
		t.Errorf("a client that says that it is a server: %v", err)
	}
}

// What decides costs no allocation while it permits, and an atomic load while there are no users.
func TestAuthorizingAllocatesNothing(t *testing.T) {
	var guard fakeGuard
	guard.permit("ann", "a/")
	a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
		Permissions: fakePermissions}, newBatchMetrics(nil), origin{},
		"ann")
	q := get("a/1")
	if n := testing.AllocsPerRun(100, func() {
		if a.refusal(q) != nil {
			t.Fatal("it is refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// For a client that may do nothing, or everything, the server looks at no key: needs take memory
// for each, and a request may have many.
func TestStandingComesBeforePermissions(t *testing.T) {
	keys := make([][]byte, 10_000)
	for i := range keys {
		keys[i] = []byte("a/1")
	}
	q := &kvpb.Request{Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{
		Partitions: []*kvpb.PartitionKeys{{Partition: 1, Keys: keys}}}}}
	for _, c := range []struct {
		what, token   string
		free, unknown bool
		asked         int
		want          kvpb.ErrorCode
	}{
		{"a stranger", "", false, false, 0, kvpb.ErrorCode_UNAUTHENTICATED},
		{"a token that is none", "bob", false, false, 0, kvpb.ErrorCode_UNAUTHENTICATED},
		{"nothing was heard", "ann", false, true, 0, kvpb.ErrorCode_ACCESS_UNKNOWN},
		{"users are off", "", true, false, 0, kvpb.ErrorCode_UNKNOWN_ERROR},
		{"a user", "ann", false, false, 1, kvpb.ErrorCode_UNKNOWN_ERROR},
	} {
		var guard fakeGuard
		guard.permit("ann", "a/")
		guard.free.Store(c.free)
		guard.unknown.Store(c.unknown)
		asked := 0
		a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
			Permissions: func(q *kvpb.Request, needs []access.Permission) ([]access.Permission,
				*kvpb.Error) {
				asked++
				return fakePermissions(q, needs)
			}}, newBatchMetrics(nil), origin{}, c.token)
		if got := a.refusal(q).GetError().GetCode(); got != c.want || asked != c.asked {
			t.Errorf("%s: %v, and needs were asked for %d times, want %v, %d", c.what, got, asked, c.want,
				c.asked)
		}
		if n := testing.AllocsPerRun(10, func() { a.refusal(q) }); c.asked == 0 && n > 10 {
			t.Errorf("%s: %v allocations", c.what, n)
		}
	}
}

func BenchmarkAuthorize(b *testing.B) {
	for _, off := range []bool{true, false} {
		name := "users"
		if off {
			name = "no-users"
		}
		b.Run(name, func(b *testing.B) {
			var guard fakeGuard
			guard.off.Store(off)
			guard.permit("ann", "a/")
			a := newAuthorizer(&BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
				Permissions: fakePermissions},
				newBatchMetrics(nil), origin{}, "ann")
			q := get("a/1")
			b.ReportAllocs()
			for b.Loop() {
				if a.refusal(q) != nil {
					b.Fatal("it is refused")
				}
			}
		})
	}
}

// FuzzHello: whatever a client begins with, the stream is refused or served, and nothing panics;
// the token is kept as it came.
func FuzzHello(f *testing.F) {
	for _, h := range []*kvpb.Hello{{}, {Client: 1, Stream: 1}, {Client: 1, Stream: 1, Token: "ann"},
		{Client: 1, Stream: 1, Token: strings.Repeat("x", wire.MaxTokenBytes+1)},
		{Client: 1, Stream: 1, Server: true}} {
		hello, err := helloOfClient(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(hello[1:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		first := new(kvpb.BatchRequest)
		if wire.UnmarshalOwned(bytes.Clone(data), first) != nil {
			return
		}
		var guard fakeGuard
		s := NewBatchServer(BatchServerConfig{Guard: &guard, RequiresAuth: fakeRequiresAuth,
			Permissions: fakePermissions, Handle: echoAll})
		if s.checkHello(first.Hello) != nil {
			return
		}
		if len(first.Hello.Token) > wire.MaxTokenBytes {
			t.Fatal("a token that is too long is taken")
		}
		a := newAuthorizer(&s.config, s.metrics, origin{}, first.Hello.Token)
		if err := a.show(first.Token); (err != nil) != (len(first.Token) > wire.MaxTokenBytes) {
			t.Fatal(err)
		}
		for _, q := range first.Requests {
			if q.Command != nil {
				a.refusal(q)
			}
		}
	})
}
