package gc

import (
	"math"
	"sync/atomic"
)

// expiries is what a leader knows of when versions of its partition expire, so that it need not
// look through all of them again and again for one that has: a collection that has looked at
// everything knows the first expiry that is left, and what is written afterwards makes it an
// earlier one. It is forgotten with the leadership epoch.
type expiries struct {
	// known is at or below the first expiry; 0: it is not known.
	known atomic.Int64
	// pass is what the collection at work will know, as far as it has got.
	pass atomic.Int64
}

// first is a time before which nothing expires.
func (x *expiries) first() int64 { return x.known.Load() }

// wrote notes that a version is written that expires; 0: that it does not.
func (x *expiries) wrote(expires int64) {
	if expires != 0 {
		lower(&x.known, expires)
		lower(&x.pass, expires)
	}
}

// begin, met and end are of a collection that looks at everything. met notes the first expiry of
// what it has looked at and stays; 0: there is none.
func (x *expiries) begin() { x.pass.Store(math.MaxInt64) }

func (x *expiries) met(expires int64) {
	if expires != 0 {
		lower(&x.pass, expires)
	}
}

func (x *expiries) end() { x.known.Store(x.pass.Load()) }

// forget: there may be versions that were not noted.
func (x *expiries) forget() {
	// In this order: of a pass that ends in between nothing is left.
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
