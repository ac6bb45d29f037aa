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

// lookEvery is the shortest time between two requests of a client for the members of the core.
const lookEvery = 5 * time.Second

// reachWithin is the time that the members which a server names have to answer. After that the
// client keeps using the server.
const reachWithin = 2 * time.Second

// members finds the addresses that a client of Connect uses. Servers that are not members of the
// core forward calls to the members, and return the addresses of the members. The client uses these
// addresses instead of the given ones if it reaches a member there. When a call fails that a server
// at another address might have answered, the given addresses are asked again in the background.
type members struct {
	given []string
	// asking is the configuration for requests to the given addresses. timeout limits such a request.
	asking  clientv3.Config
	timeout time.Duration
	clock   hlc.Monotonic

	// ctx ends with close. running counts the running search.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu struct {
		sync.Mutex
		// etcd is nil until the client is made.
		etcd *clientv3.Client
		// looking: a search is under way. looked: there was a search, which began at the time last.
		looking, looked, closed bool
		last                    int64
	}
}

// newMembers makes the members of a client with a configuration. It sets hooks in the
// configuration, through which members learns of failed calls.
func newMembers(cfg *config) *members {
	m := &members{given: slices.Clone(cfg.etcd.Endpoints), timeout: cfg.attempt, clock: cfg.clock,
		asking: cfg.etcd}
	// The question for the members needs no user, and a server that is not a member knows no users.
	m.asking.Username, m.asking.Password, m.asking.Token = "", "", ""
	m.asking.DialTimeout = 0
	m.ctx, m.cancel = context.WithCancel(context.Background())
	cfg.etcd.DialOptions = append(slices.Clone(cfg.etcd.DialOptions),
		grpc.WithChainUnaryInterceptor(m.unary), grpc.WithChainStreamInterceptor(m.stream))
	return m
}

// close ends a search under way, and prevents later ones.
func (m *members) close() {
	m.mu.Lock()
	m.mu.closed = true
	m.mu.Unlock()
	m.cancel()
	m.running.Wait()
}

// begin stores the client after it was made.
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

// heardStream reports the end of a stream to members.
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

// heard processes the error of a call.
func (m *members) heard(err error) {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded:
		m.look()
	}
}

// look starts a request for the members, unless one was made just before. It does not block.
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

// ask asks the given addresses for the members, and makes the client use the answer. If no address
// answers, the client keeps its addresses.
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

// next returns the addresses to use after a server has answered with a list of members. These are
// the addresses that goOn finds. If the server is not a member and no member answers, next returns
// the given addresses: the members may be in a network that the client cannot reach, and the server
// forwards calls.
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

// isRefusal reports whether a member refuses to list the members to callers that are not
// authenticated. A server that is not a member refuses nobody.
func isRefusal(err error) bool {
	switch rpctypes.Error(err) {
	case rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision,
		rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionNotGranted:
		return true
	}
	return false
}

// listMembers asks a server for the members. A server that is not a member answers from its own
// knowledge.
func listMembers(ctx context.Context, etcd *clientv3.Client) ([]*pb.Member, error) {
	ctx = metadata.AppendToOutgoingContext(ctx, coordpb.FindMembers, "1")
	list, err := etcd.MemberList(ctx, clientv3.WithSerializable())
	if err != nil {
		return nil, err
	}
	return list.Members, nil
}

// goOn returns the addresses to use. A server that is not a member lists the members without ids:
// then their addresses are used. A member lists them with ids, and possibly with addresses that
// mean nothing to the client: then the given addresses that belong to members are used, or all
// given addresses if none belongs to a member.
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

// hostOf returns the host and port of an endpoint with or without a scheme.
func hostOf(endpoint string) string {
	if _, host, found := strings.Cut(endpoint, "://"); found {
		return host
	}
	return endpoint
}

func sameAddresses(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
