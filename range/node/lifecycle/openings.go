package lifecycle

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// openings are the partitions whose replica is being made and opened. A split and the table may
// both want that at once. The zero value is ready for use.
type openings struct {
	// all maps a partition to a channel, which is closed when the opening has ended.
	all sync.Map
}

// begin claims the opening of a partition's replica; false if the replica is open, or is being
// opened. Otherwise end follows when it is registered.
func (o *openings) begin(id keys.PartitionID, open *hosted.Registry) bool {
	if _, other := o.all.LoadOrStore(id, make(chan struct{})); other {
		return false
	}
	if open.Get(id) != nil {
		o.end(id)
		return false
	}
	return true
}

// end reports the end of the opening to those that wait for it.
func (o *openings) end(id keys.PartitionID) {
	if over, ok := o.all.LoadAndDelete(id); ok {
		close(over.(chan struct{}))
	}
}

// of returns the channel of an opening that is under way.
func (o *openings) of(id keys.PartitionID) (over <-chan struct{}, opening bool) {
	if x, ok := o.all.Load(id); ok {
		return x.(chan struct{}), true
	}
	return nil, false
}

// any reports whether an opening is under way.
func (o *openings) any() bool {
	for range o.all.Range {
		return true
	}
	return false
}
