package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// View is the state of a partition as a read sees it. The replica has made sure before that the
// state at the view's timestamp never changes.
type View struct {
	State engine.Reader
	// Vacant remembers spans without values in the state.
	Vacant     *vacant.Memory
	Descriptor *clusterpb.Partition
	At         hlc.Timestamp
	// Uncertain is the limit up to which versions may have been acknowledged, and expiries may have
	// been seen, before the read began; zero if nothing is uncertain. A read that meets one fails
	// with *mvcc.UncertaintyError.
	Uncertain mvcc.Limits
	// Partition gives what is not in the state.
	Partition Partition
	// Since is for reads of changes: no version lies above the request's timestamp and at or below
	// Since.
	Since hlc.Timestamp
	// Seen is the highest timestamp of the versions with commit wait that the read has seen; zero
	// if there were none. The answer is held for it.
	Seen hlc.Timestamp
}

// Partition is what a read needs of its replica.
type Partition interface {
	// SameLeadership reports whether reads were made under the present leadership epoch of this
	// replica.
	SameLeadership(*kvpb.Leadership) bool
	// TooOld refuses a read at a timestamp below the garbage collection threshold; nil if it is not
	// below.
	TooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response
	// Conflicts counts a conflict of transactions.
	Conflicts()
}

// see notes that a version was read.
func (v *View) see(version mvcc.Version, found bool) {
	if found && version.CommitWait {
		v.Seen = hlc.Max(v.Seen, version.Timestamp)
	}
}

// isValue reports whether a version is a value. A version that has expired at the timestamp of a
// read is of another kind.
func isValue(v mvcc.Version, found bool) bool { return found && v.Kind == mvcc.KindValue }
