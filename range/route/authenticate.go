package route

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// User names the client's user by a password.
type User struct {
	Name string
	// Password is asked for each token.
	Password func(context.Context) (string, error)
}

// authenticateMethod is that of the etcd API.
const authenticateMethod = "/etcdserverpb.Auth/Authenticate"

// notEnabled is what a server says of which no client needs a user.
const notEnabled = "etcdserver: authentication is not enabled"

// authenticate has a member of the core exchange the user's password for a token: "" while
// authentication is not enabled.
func (s *Sender) authenticate(ctx context.Context) (string, error) {
	user := s.cfg.User
	password, err := user.Password(ctx)
	if err != nil {
		return "", fmt.Errorf("the password of user %q: %w", user.Name, err)
	}
	q := &coordpb.AuthenticateRequest{Name: user.Name, Password: password}
	var said []string
	asked := make(map[string]bool)
	for _, all := range [...]func(context.Context) []string{s.likelyMembers, s.toldMembers} {
		for _, address := range all(ctx) {
			if asked[address] || ctx.Err() != nil {
				continue
			}
			asked[address] = true
			token, err := s.authenticateAt(ctx, address, q)
			if err == nil {
				return token, nil
			}
			if !passing(err) && status.Code(err) != codes.Unimplemented {
				return "", fmt.Errorf("user %q: %w", user.Name, err)
			}
			said = append(said, address+": "+wire.Reason(err))
		}
	}
	return "", status.Errorf(codes.Unavailable,
		"no member of the core could authenticate user %q: %s",
		user.Name, strings.Join(said, "; "))
}

func (s *Sender) authenticateAt(ctx context.Context, address string,
	q *coordpb.AuthenticateRequest) (string, error) {
	conn, err := s.lanes[0].dialer.Conn(address)
	if err != nil {
		return "", status.Error(codes.Unavailable, err.Error())
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
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

// likelyMembers are all servers that are known.
func (s *Sender) likelyMembers(context.Context) []string { return s.adminServers() }

// toldMembers asks servers for the members of the core.
func (s *Sender) toldMembers(ctx context.Context) []string {
	for _, address := range s.adminServers() {
		client, err := s.clusterClient(address)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		st, err := client.Status(ctx, &clusterpb.StatusRequest{})
		cancel()
		if err != nil || len(st.GetMembers()) == 0 {
			continue
		}
		var all []string
		for _, m := range st.GetMembers() {
			all = append(all, m.GetAddress())
		}
		return all
	}
	return nil
}
