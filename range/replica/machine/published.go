package machine

import (
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// published is what a partition is, as all may know without a lock.
type published struct {
	// What descriptor points to is never changed.
	descriptor atomic.Pointer[clusterpb.Partition]
	// at is the index of the entry that has brought the descriptor, or a later one.
	at atomic.Uint64
	// coming is the generation of the descriptor that is to follow, if a part of what the present one
	// names is going from the state. It may be an earlier one.
	coming atomic.Uint64
	// consumedBy is the partition that has consumed this one, as soon as it serves the span.
	consumedBy atomic.Pointer[clusterpb.Partition]
}

// Descriptor is the partition's descriptor. It must not be changed.
func (p *published) Descriptor() *clusterpb.Partition { return p.descriptor.Load() }

// DescribedAt is the index of the entry that has brought the descriptor, or a later one.
func (p *published) DescribedAt() uint64 { return p.at.Load() }

// Publish sets the descriptor that the entry at an index has brought.
//
// INVARIANT: the index is published before the descriptor. Who has read a descriptor, and has
// applied the index that it reads then, has applied all that made the descriptor.
func (p *published) Publish(d *clusterpb.Partition, index uint64) {
	p.at.Store(index)
	p.descriptor.Store(d)
}

// Announce says that a part of what the present descriptor names is going from the state, and what
// the generation will be.
func (p *published) Announce(generation uint64) { p.coming.Store(generation) }

// Consumed says that another partition serves the span.
func (p *published) Consumed(by *clusterpb.Partition) { p.consumedBy.Store(by) }

// ConsumedBy is the partition that has consumed this one on this node; nil if none has.
func (p *published) ConsumedBy() *clusterpb.Partition { return p.consumedBy.Load() }

// MovedFrom is nil if the partition is still what it was at a generation; otherwise it is the
// descriptor of what has its place.
func (p *published) MovedFrom(generation uint64) *clusterpb.Partition {
	if by := p.ConsumedBy(); by != nil {
		return by
	}
	if d := p.Descriptor(); d.GetGeneration() != generation || p.coming.Load() > d.GetGeneration() {
		return d
	}
	return nil
}
