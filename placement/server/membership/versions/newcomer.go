package versions

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/membership/roster"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A newcomer gets the whole log, and stops at a command of a format that it does not know. So it
// has to know every format that may have been written: all formats that the members are known to
// know, or, as long as that is not known, all formats that this version can write. The newcomer is
// asked when the change is recorded, and again when it is added: the change may have been recorded
// when fewer formats were in use, or by a leader of a version that did not ask.

// KnowsCommands refuses a newcomer whose version may not know a command in the log.
func (v *Versions) KnowsCommands(h *clusterpb.BootstrapHello, address string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.knowsCommandsLocked(h, address)
}

func (v *Versions) knowsCommandsLocked(h *clusterpb.BootstrapHello, address string) error {
	least := v.mu.least.commands
	switch {
	case least > 0 && h.GetCommands() >= least, h.GetCommands() >= store.NewestFormat:
		return nil
	case least > 0:
		return status.Errorf(codes.FailedPrecondition, "the server at %s runs an older version than "+
			"the members of the core: upgrade it first", address)
	}
	why := "its leader has not heard all members yet"
	if unheard, older := v.unknowingLocked(); len(unheard) > 0 {
		why = "its leader has not heard the version of " + roster.JoinOr(unheard)
	} else if len(older) > 0 {
		why = roster.JoinOr(older) + " runs an older version too"
	}
	return status.Errorf(codes.FailedPrecondition, "the server at %s runs an older version than the "+
		"leader of the core, and it is not known that it can read all that the core has written: %s; "+
		"upgrade the server first", address, why)
}

// Admit refuses a newcomer that is about to be added, as KnowsCommands does. If it accepts the
// newcomer, commands that the newcomer does not know are not proposed from then on, until the
// newcomer is a member.
func (v *Versions) Admit(h *clusterpb.BootstrapHello, address string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.knowsCommandsLocked(h, address); err != nil {
		return err
	}
	v.mu.coming = newcomer{server: h.Server, commands: h.Commands}
	return nil
}

// Expect records the server that is being added, or 0 if none is. The newcomer of another change is
// dropped.
func (v *Versions) Expect(server uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.mu.coming.server != server {
		v.mu.coming = newcomer{}
	}
}
