package membership

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A newcomer gets the whole log, and stops at a command of a format that it does not know. So it
// has to know every format that may have been written: all that the members are known to know, or,
// as long as that is not known, all that this version can write. It is asked when the change is
// recorded, and again when it is added: the change may have been recorded when fewer formats were
// in use, or by a leader of a version that did not ask.

// knowsCommands refuses a newcomer whose version may not know what is in the log.
func (s *Membership) knowsCommands(h *clusterpb.BootstrapHello, address string) error {
	s.versions.mu.Lock()
	defer s.versions.mu.Unlock()
	return s.knowsCommandsLocked(h, address)
}

func (s *Membership) knowsCommandsLocked(h *clusterpb.BootstrapHello, address string) error {
	least := s.versions.mu.least.commands
	switch {
	case least > 0 && h.GetCommands() >= least, h.GetCommands() >= store.NewestFormat:
		return nil
	case least > 0:
		return status.Errorf(codes.FailedPrecondition, "the server at %s runs an older version than "+
			"the members of the core: upgrade it first", address)
	}
	why := "its leader has not heard all members yet"
	if unheard, older := s.unknowingLocked(); len(unheard) > 0 {
		why = "its leader has not heard the version of " + joinOr(unheard)
	} else if len(older) > 0 {
		why = joinOr(older) + " runs an older version too"
	}
	return status.Errorf(codes.FailedPrecondition, "the server at %s runs an older version than the "+
		"leader of the core, and it is not known that it can read all that the core has written: %s; "+
		"upgrade the server first", address, why)
}

// supportsLevel refuses a newcomer whose program does not support the level of the cluster, as it
// is applied here.
func (s *Membership) supportsLevel(h *clusterpb.BootstrapHello, address string) error {
	level, err := upgrade.Load(s.store.Stale())
	if err != nil {
		return s.meta.Status(err)
	}
	return level.Admit(address, "", h.Levels)
}

// mayAdd returns why the newcomer of a goal cannot be added now; empty: it can. From then on, until
// it is a member, nothing is proposed that it does not know.
func (s *Membership) mayAdd(ctx context.Context, g *serverpb.CoreGoal) string {
	limited, cancel := context.WithTimeout(ctx, helloTimeout)
	h, err := s.config.Hello(limited, g.AddAddress)
	cancel()
	if status.Code(err) == codes.Unimplemented {
		h, err = &clusterpb.BootstrapHello{Server: g.AddServer}, nil // it reports nothing of itself
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
	v := &s.versions
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := s.knowsCommandsLocked(h, g.AddAddress); err != nil {
		return status.Convert(err).Message()
	}
	v.mu.coming = newcomer{server: g.AddServer, commands: h.Commands}
	return ""
}

// expect notes which change is under way, nil if none is: a newcomer of another change will not
// come.
func (v *versions) expect(g *serverpb.CoreGoal) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.coming.server != g.GetAddServer() {
		v.mu.coming = newcomer{}
	}
}
