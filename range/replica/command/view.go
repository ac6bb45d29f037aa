package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// View is the state of a partition as a read sees it. What there is to read at its timestamp stays
// as it is for ever: the replica has seen to that before.
type View struct {
	State engine.Reader
	// Vacant is what is known of spans without values in the state.
	Vacant     *vacant.Memory
	Descriptor *clusterpb.Partition
	At         hlc.Timestamp
	// Uncertain is up to where versions may have been acknowledged, and expiries may have been seen,
	// before the read began; zero if nothing is uncertain. Meeting one is an *mvcc.UncertaintyError.
	Uncertain mvcc.Limits
	// Partition answers what is not in the state.
	Partition Partition
	// Since, in a read of changes: it is known that no version lies above what the request says, and
	// at or below this.
	Since hlc.Timestamp
	// Seen is the highest timestamp of the versions with commit wait that the read has seen; zero if
	// there were none. The answer waits for it.
	Seen hlc.Timestamp
}

// Partition is what a read asks its replica.
type Partition interface {
	// SameLeadership says that reads were made under the present leadership epoch of this replica.
	SameLeadership(*kvpb.Leadership) bool
	// TooOld refuses to tell of a moment from which not everything is kept any more; nil if it can.
	TooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response
	// Conflicts counts a conflict of transactions.
	Conflicts()
}

// see notes that a version was looked at.
func (v *View) see(version mvcc.Version, found bool) {
	if found && version.CommitWait {
		v.Seen = hlc.Max(v.Seen, version.Timestamp)
	}
}

// isValue says that a version is there to be read. One that has expired at the timestamp of a read
// is of another kind.
func isValue(v mvcc.Version, found bool) bool { return found && v.Kind == mvcc.KindValue }
