package replica

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Epoch is a leadership epoch of a replica: the time in which nothing that is pending is given up.
// It ends when the group's leadership changes, and also within a term, when proposals were lost, or
// may have been. What belongs to an epoch, an evaluation or a read, has no effect in another one
// (leadership.is). Epochs are compared with ==.
type Epoch struct {
	term uint64
	// number counts the epochs of a replica since its process opened it.
	number uint64
}

// wire is the epoch as clients carry it from one request to the next.
func (e Epoch) wire(partition keys.PartitionID) *kvpb.Leadership {
	return &kvpb.Leadership{Partition: uint64(partition), Term: e.term, Epoch: e.number}
}

// isWire says that a client names this epoch of a partition.
func (e Epoch) isWire(partition keys.PartitionID, l *kvpb.Leadership) bool {
	return l.Partition == uint64(partition) && e == Epoch{l.Term, l.Epoch}
}
