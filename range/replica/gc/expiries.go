package gc

import (
	"math"
	"sync/atomic"
)

// expiries holds what a leader knows about the expiries in its partition, so that it need not look
// through all versions again and again for an expired one. A collection that has looked at
// everything knows the first expiry that is left; a later write may make it earlier. It is
// forgotten with the leadership epoch.
type expiries struct {
	// known is at or below the first expiry, in nanoseconds since the epoch; 0: not known.
	known atomic.Int64
	// pass is what the running collection will know, as far as it has come.
	pass atomic.Int64
}

// first returns a time before which nothing expires; 0: not known.
func (x *expiries) first() int64 { return x.known.Load() }

// wrote notes when a version that is written expires; 0: never.
func (x *expiries) wrote(expires int64) {
	if expires != 0 {
		lower(&x.known, expires)
		lower(&x.pass, expires)
	}
}

// begin, met and end are called by a collection that looks at everything. met notes the first
// expiry of the versions that it has looked at and that stay; 0: there is none.
func (x *expiries) begin() { x.pass.Store(math.MaxInt64) }

func (x *expiries) met(expires int64) {
	if expires != 0 {
		lower(&x.pass, expires)
	}
}

func (x *expiries) end() { x.known.Store(x.pass.Load()) }

// forget forgets everything: there may be versions that were not noted.
func (x *expiries) forget() {
	// In this order: of a pass that ends in between nothing remains.
	x.pass.Store(0)
	x.known.Store(0)
}

func lower(v *atomic.Int64, to int64) {
	for {
		before := v.Load()
		if before <= to || v.CompareAndSwap(before, to) {
			return
		}
	}
}
