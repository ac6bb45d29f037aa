package coord

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// lookEvery is how often at most a client asks again where the members of the core are.
const lookEvery = 5 * time.Second

// reachWithin is how long the members have to answer that a server names, before the client goes on
// with the server.
const reachWithin = 2 * time.Second

// members are the addresses that a client of Connect goes on with. Servers that are not members of
// the core pass calls on to these, and tell where these are; so the client has the members'
// addresses in place of those that it was given, if it reaches a member there. When a call fails
// that a server at another address might have answered, the given addresses are asked once more, in
// the background.
type members struct {
	given []string
	// asking is how the given addresses are asked, and timeout for how long.
	asking  clientv3.Config
	timeout time.Duration
	clock   hlc.Monotonic

	// ctx ends by close. running is the look that is under way.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// etcd is nil until the client is made.
		etcd *clientv3.Client
		// looking: a look is under way. looked: there was one, which began at the time last.
		looking, looked, closed bool
		last                    int64
	}
}

// newMembers makes the members of a client that is to be made of a configuration, and has that
// client say which of its calls fail.
func newMembers(cfg *config) *members {
	m := &members{given: slices.Clone(cfg.etcd.Endpoints), timeout: cfg.attempt, clock: cfg.clock,
		asking: cfg.etcd}
	// A call that asks where the members are needs no user, and a server that is no member knows no
	// users.
	m.asking.Username, m.asking.Password, m.asking.Token = "", "", ""
	m.asking.DialTimeout = 0
	m.ctx, m.cancel = context.WithCancel(context.Background())
	cfg.etcd.DialOptions = append(slices.Clone(cfg.etcd.DialOptions),
		grpc.WithChainUnaryInterceptor(m.unary), grpc.WithChainStreamInterceptor(m.stream))
	return m
}

// close ends a look that is under way, and there is none after it.
func (m *members) close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
}

// begin gives the client that was made.
func (m *members) begin(etcd *clientv3.Client) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.etcd = etcd
}

// unary implements grpc.UnaryClientInterceptor.
func (m *members) unary(ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, options...)
	m.heard(err)
	return err
}

// stream implements grpc.StreamClientInterceptor.
func (m *members) stream(ctx context.Context, d *grpc.StreamDesc, conn *grpc.ClientConn,
	method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, d, conn, method, options...)
	if err != nil {
		m.heard(err)
		return nil, err
	}
	return &heardStream{s, m}, nil
}

// heardStream says of a stream how it ends.
type heardStream struct {
	grpc.ClientStream
	members *members
}

// RecvMsg implements grpc.ClientStream.
func (s *heardStream) RecvMsg(into any) error {
	err := s.ClientStream.RecvMsg(into)
	s.members.heard(err)
	return err
}

// heard takes note of how a call has ended.
func (m *members) heard(err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		m.look()
	}
}

// look begins to ask where the members are, unless that was done just now. It does not block.
func (m *members) look() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.clock()
	if m.mu.etcd == nil || m.mu.looking || m.mu.closed ||
		m.mu.looked && now-m.mu.last < int64(lookEvery) {
		return
	}
	m.mu.looking, m.mu.looked, m.mu.last = true, true, now
	etcd := m.mu.etcd
	m.running.Go(func() {
		m.ask(etcd)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.looking = false
	})
}

// ask asks the given addresses, and has the client go on with what it hears. If nothing answers,
// the addresses stay.
func (m *members) ask(etcd *clientv3.Client) {
	ctx, cancel := context.WithTimeout(m.ctx, m.timeout)
	defer cancel()
	asking, err := clientv3.New(m.asking)
	if err != nil {
		return
	}
	defer asking.Close()
	list, err := listMembers(ctx, asking)
	next := m.given
	switch {
	case err == nil:
		next = m.next(m.ctx, list)
	case !isRefusal(err):
		return
	}
	if m.ctx.Err() == nil && !sameAddresses(next, etcd.Endpoints()) {
		etcd.SetEndpoints(next...)
	}
}

// next are the addresses to go on with after a server has answered with a list of members: those
// that goOn finds, but the given ones if the server is no member and none of the members answers.
// The members may be in a network that the client is not in, and the server passes calls on.
func (m *members) next(ctx context.Context, list []*pb.Member) []string {
	found := goOn(m.given, list)
	if slices.ContainsFunc(list, func(of *pb.Member) bool { return of.ID != 0 }) {
		return found
	}
	asking := m.asking
	asking.Endpoints = found
	etcd, err := clientv3.New(asking)
	if err != nil {
		return m.given
	}
	defer etcd.Close()
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if _, err := listMembers(ctx, etcd); err != nil && !isRefusal(err) {
		return m.given
	}
	return found
}

// isRefusal says whether a member has refused to say where the members are, as it refuses callers
// that are not authenticated. A server that is no member refuses none.
func isRefusal(err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
		rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionNotGranted:
		return true
	}
	return false
}

// listMembers asks a server where the members are. A server that is no member answers by itself.
func listMembers(ctx context.Context, etcd *clientv3.Client) ([]*pb.Member, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, coordpb.FindMembers, "1")
	list, err := etcd.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, err
	}
	return list.Members, nil
}

// goOn are the addresses to go on with. A server that is no member lists the members without their
// ids: they are the addresses then. A member lists them with ids, and may know its address, and
// those of others, by names that mean nothing to the client: of the given addresses those are left
// out that are no member's, if any of them is a member's.
func goOn(given []string, list []*pb.Member) []string {
	var named, both []string
	ids := false
	for _, m := range list {
		ids = ids || m.ID != 0
		named = append(named, m.ClientURLs...)
	}
	if !ids {
		if len(named) == 0 {
			return given
		}
		return named
	}
	for _, endpoint := range given {
		if slices.ContainsFunc(named, func(url string) bool {
			return hostOf(url) == hostOf(endpoint)
		}) {
			both = append(both, endpoint)
		}
	}
	if len(both) == 0 {
		return given
	}
	return both
}

// hostOf is the host and port of an endpoint, with a scheme or without one.
func hostOf(endpoint string) string {
	if _, host, found := strings.Cut(endpoint, "://"); found {
		return host
	}
	return endpoint
}

func sameAddresses(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
