package membership

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// supportsLevel refuses a newcomer whose program does not support the level of the cluster in this
// member's applied state.
func (s *Membership) supportsLevel(h *clusterpb.BootstrapHello, address string) error {
	level, err := upgrade.Load(s.store.Stale())
	if err != nil {
		return s.meta.Status(err)
	}
	return level.Admit(address, "", h.Levels)
}

// mayAdd returns why the newcomer of a goal cannot be added now. It returns an empty string if the
// newcomer can be added. From then on, until the newcomer is a member, commands that the newcomer
// does not know are not proposed.
func (s *Membership) mayAdd(ctx context.Context, g *serverpb.CoreGoal) string {
	h, err := s.hello(ctx, g.AddAddress)
	if status.Code(err) == codes.Unimplemented {
		h, err = &clusterpb.BootstrapHello{Server: g.AddServer}, nil // its version cannot answer
	}
	switch {
	case err != nil:
		return fmt.Sprintf("%s does not say which version it runs: %s", g.AddAddress,
			wire.Reason(err))
	case h.Server != g.AddServer:
		return fmt.Sprintf("another server than the one that is to be added answers at %s: start "+
			"that one there, or take the newcomer back with `tidemark core remove`", g.AddAddress)
	}
	if err := s.supportsLevel(h, g.AddAddress); err != nil {
		return status.Convert(err).Message()
	}
	if err := s.versions.Admit(h, g.AddAddress); err != nil {
		return status.Convert(err).Message()
	}
	return ""
}
