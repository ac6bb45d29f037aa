package meta

import (
	"context"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Records are the records of the core, as one member has them in its store.
type Records struct {
	ctx      context.Context
	store    *store.Store
	cluster  uint64
	founders []*clusterpb.CoreMember
	// turn has room for one: calls that read, decide and write take turns.
	turn chan struct{}
}

// New makes the records of a member. ctx ends when the member is closed; founders are the
// members of the core as they are known while the store has none.
func New(
	ctx context.Context, s *store.Store, cluster uint64, founders []*clusterpb.CoreMember,
) *Records {
	return &Records{ctx: ctx, store: s, cluster: cluster, founders: founders,
		turn: make(chan struct{}, 1)}
}
