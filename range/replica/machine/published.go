package machine

import (
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// published is what may be known of a partition without a lock.
type published struct {
	// The descriptor that it points to is never changed.
	descriptor atomic.Pointer[clusterpb.Partition]
	// at is the index of the entry that has brought the descriptor, or a later index.
	at atomic.Uint64
	// last is the index of the last entry of the log when the descriptor was applied; 0 if the
	// descriptor was in the state, or in a snapshot.
	last atomic.Uint64
	// coming is the generation of the next descriptor, set before a part of the present
	// descriptor's span leaves the state. Otherwise it is an earlier generation.
	coming atomic.Uint64
	// subsumedBy is the partition that has consumed this one. It is set as soon as that partition
	// serves the span.
	subsumedBy atomic.Pointer[clusterpb.Partition]
}

// Descriptor returns the partition's descriptor. It must not be changed.
func (p *published) Descriptor() *clusterpb.Partition { return p.descriptor.Load() }

// DescribedAt returns the index of the entry that has brought the descriptor, or a later index.
func (p *published) DescribedAt() uint64 { return p.at.Load() }

// SettledBehind returns the index behind which an entry has to be applied so that the descriptor is
// settled.
func (p *published) SettledBehind() uint64 { return max(p.at.Load(), p.last.Load()) }

// Publish sets the descriptor that the entry at an index has brought. last is the index of the last
// entry of the log; 0 if the descriptor was in the state, or in a snapshot.
//
// INVARIANT: the index is published before the descriptor. A reader that reads a descriptor, then
// the index, and has applied the log up to that index, has applied all that made the descriptor.
func (p *published) Publish(d *clusterpb.Partition, index, last uint64) {
	p.last.Store(last)
	p.at.Store(index)
	p.descriptor.Store(d)
}

// Announce publishes the generation of the next descriptor, before a part of the present
// descriptor's span leaves the state.
func (p *published) Announce(generation uint64) { p.coming.Store(generation) }

// Subsumed notes the partition that serves the span from now on.
func (p *published) Subsumed(by *clusterpb.Partition) { p.subsumedBy.Store(by) }

// SubsumedBy returns the partition that has consumed this one on this node; nil if there is none.
func (p *published) SubsumedBy() *clusterpb.Partition { return p.subsumedBy.Load() }

// MovedFrom returns nil if the partition is unchanged since a generation; otherwise it returns the
// descriptor that has taken the place of that generation's.
func (p *published) MovedFrom(generation uint64) *clusterpb.Partition {
	if by := p.SubsumedBy(); by != nil {
		return by
	}
	if d := p.Descriptor(); d.GetGeneration() != generation || p.coming.Load() > d.GetGeneration() {
		return d
	}
	return nil
}
