package host

import (
	"maps"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// registry has the open groups of a host.
type registry struct {
	mu struct {
		sync.RWMutex
		groups map[keys.PartitionID]*Group
		// next is the shard of the next group.
		next int
		// closed: no group is opened any more.
		closed bool
	}
}

// Group returns an open group, or nil.
func (r *registry) Group(id keys.PartitionID) *Group {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.mu.groups[id]
}

// all lists the open groups.
func (r *registry) all() []*Group {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Collect(maps.Values(r.mu.groups))
}

// Groups calls visit for every open group.
func (r *registry) Groups(visit func(*Group)) {
	for _, g := range r.all() {
		visit(g)
	}
}
