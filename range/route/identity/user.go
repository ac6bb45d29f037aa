package identity

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// User names the client's user by a password.
type User struct {
	Name string
	// Password is asked for each token.
	Password func(context.Context) (string, error)
}

// loginTimeout is how long one member may take before another one is asked.
const loginTimeout = 3 * time.Second

// authenticateMethod is that of the etcd API.
const authenticateMethod = "/etcdserverpb.Auth/Authenticate"

// notEnabled is what a server says of which no client needs a user.
const notEnabled = "etcdserver: authentication is not enabled"

// Members finds members of the core that can exchange a password for a token.
type Members interface {
	// Servers are the addresses of all servers that are known, the likely ones first.
	Servers() []string
	// Members asks the servers for the addresses of the members of the core; none if no server
	// answers.
	Members(ctx context.Context) []string
	// Conn is a connection to an address.
	Conn(address string) (*grpc.ClientConn, error)
}

// Authenticate has a member of the core exchange the user's password for a token: "" while
// authentication is not enabled.
func (u *User) Authenticate(ctx context.Context, m Members) (string, error) {
	password, err := u.Password(ctx)
	if err != nil {
		return "", fmt.Errorf("the password of user %q: %w", u.Name, err)
	}
	q := &coordpb.AuthenticateRequest{Name: u.Name, Password: password}
	var said []string
	asked := make(map[string]bool)
	servers := func(context.Context) []string { return m.Servers() }
	for _, all := range [...]func(context.Context) []string{servers, m.Members} {
		for _, address := range all(ctx) {
			if asked[address] || ctx.Err() != nil {
				continue
			}
			asked[address] = true
			token, err := authenticateAt(ctx, m, address, q)
			if err == nil {
				return token, nil
			}
			if !Passing(err) && status.Code(err) != codes.Unimplemented {
				return "", fmt.Errorf("user %q: %w", u.Name, err)
			}
			said = append(said, address+": "+wire.Reason(err))
		}
	}
	return "", status.Errorf(codes.Unavailable,
		"no member of the core could authenticate user %q: %s",
		u.Name, strings.Join(said, "; "))
}

func authenticateAt(ctx context.Context, m Members, address string,
	q *coordpb.AuthenticateRequest) (string, error) {
	conn, err := m.Conn(address)
	if err != nil {
		return "", status.Error(codes.Unavailable, err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	r := new(coordpb.AuthenticateResponse)
	err = conn.Invoke(ctx, authenticateMethod, q, r)
	if s := status.Convert(err); s.Code() == codes.FailedPrecondition {
		if s.Message() == notEnabled {
			return "", nil
		}
		// A member without a vote, or without a state yet, knows nothing of users.
		return "", status.Error(codes.Unavailable, s.Message())
	}
	return r.GetToken(), err
}
