package guard

import "github.com/tidemarkdb/tidemark/rpc/clusterpb"

// Mark is whether a server has to follow users and roles, as it has it on disk.
type Mark struct {
	// Version counts the changes that the core has made; 0: none is known.
	Version uint64
	// On: it has to follow.
	On bool
}

func markOf(s *clusterpb.GuardState) Mark { return Mark{s.GetVersion(), s.GetOn()} }

func (m Mark) state() *clusterpb.GuardState {
	return &clusterpb.GuardState{Version: m.Version, On: m.On}
}
