package route

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/range/route/follow"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// AwaitIdentity waits, for a moment, until the client's identity is known. Its error is that there
// will be no token: the password is wrong. That no server answers is none.
func (s *Sender) AwaitIdentity(ctx context.Context) error {
	if err := s.identity.AwaitFirst(ctx); err != nil {
		return &Error{Code: kvpb.ErrorCode_UNAUTHENTICATED, Message: wire.Reason(err)}
	}
	return nil
}

// coreMembers is a Sender that finds members of the core.
type coreMembers Sender

// Servers implements identity.Members.
func (m *coreMembers) Servers() []string { return (*Sender)(m).adminServers() }

// Conn implements identity.Members.
func (m *coreMembers) Conn(address string) (*grpc.ClientConn, error) {
	return m.nodes.Dialer().Conn(address)
}

// Members implements identity.Members.
func (m *coreMembers) Members(ctx context.Context) []string {
	s := (*Sender)(m)
	for _, address := range s.adminServers() {
		client, err := s.servers.Client(address)
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, follow.StatusTimeout)
		st, err := client.Status(ctx, &clusterpb.StatusRequest{})
		cancel()
		if err != nil || len(st.GetMembers()) == 0 {
			continue
		}
		var all []string
		for _, member := range st.GetMembers() {
			all = append(all, member.GetAddress())
		}
		return all
	}
	return nil
}

// unauthenticated decides what follows the answer that a server does not know the client.
func (a *attempt) unauthenticated() (_ *Error, again *backoff.Backoff) {
	if !a.sender.identity.Named() || a.reidentified {
		return a.ended(nil), nil
	}
	a.reidentified = true
	return nil, &identityBackoff
}

// reidentify gets a new token before the next attempt.
func (a *attempt) reidentify(ctx context.Context) error {
	err := a.sender.identity.Renew(ctx, a.token)
	if err == nil {
		return nil
	}
	if ctx.Err() == nil {
		a.note(kvpb.ErrorCode_UNAUTHENTICATED, wire.Reason(err), a.last.partition, a.last.node)
		return a.ended(nil)
	}
	return a.ended(ctx.Err())
}
