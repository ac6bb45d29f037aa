package reshape

import (
	"context"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Replica is what a Reshaper needs of its replica.
type Replica interface {
	ID() keys.PartitionID
	ReplicaID() keys.ReplicaID
	Descriptor() *clusterpb.Partition
	Stats() storage.Stats
	// Propose evaluates an entry in its turn, with nothing in flight, and waits until the entry is
	// applied here. Nothing is proposed if evaluate returns false. When ctx ends first, the entry
	// may still take effect.
	Propose(ctx context.Context, kind proposal.Kind,
		evaluate func(Evaluation) (propose bool, err error)) (proposed bool, err error)
	// ProposeThaw is Propose for an entry that ends the freeze of the partition: it is evaluated
	// during the freeze, before all that waits for its end.
	ProposeThaw(ctx context.Context, evaluate func(Evaluation) (bool, error)) error
	// Subsumed returns an error if another partition has taken over the replica's span.
	Subsumed() error
	// EndSplitStats ends the count for a split that did not take place.
	EndSplitStats(t *SplitStats)
	// Enter announces a user of the state database, until Exit. It returns an error if the replica is
	// closed.
	Enter() error
	Exit()
}

// Evaluation is the evaluation of one entry. It is valid until evaluate returns.
type Evaluation interface {
	// Descriptor returns the partition's descriptor before the entry.
	Descriptor() *clusterpb.Partition
	// Entry returns the part of the entry that evaluate fills.
	Entry() *proposal.Entry
	// Batch returns the batch of the entry.
	Batch() *engine.StateBatch
	// Changes notes how the entry changes the partition's statistics, and a timestamp at or above
	// all its versions.
	Changes(delta proposal.Delta, highest hlc.Timestamp)
	// ChangesReplicas notes the configuration that the entry leads to.
	ChangesReplicas(next *group.Configuration)
	// ClockConfirmed returns an error while it is not known what earlier leaders have served.
	ClockConfirmed() error
	// HoldBack has the entry close every timestamp at which the leader has served a read. Requests
	// to the partition wait until the fate of the entry is known.
	HoldBack() error
	// BeginSplitStats and TakeSplitStats begin and end the count of what is written to the part
	// that is to split off.
	BeginSplitStats(t *SplitStats) error
	TakeSplitStats(t *SplitStats) (storage.Stats, error)
}

// Reshaper makes the entries that reshape the partition of one replica.
type Reshaper struct {
	replica Replica
	state   *engine.State
	// pacer makes the counts of a part that splits off pause.
	pacer *admission.Pacer
}

// New returns a Reshaper.
func New(replica Replica, state *engine.State, pacer *admission.Pacer) *Reshaper {
	return &Reshaper{replica, state, pacer}
}

// local is a key and a value of a partition's local span.
type local struct{ key, value []byte }

// set puts keys and values into the batch of an entry.
func set(e Evaluation, all ...local) error {
	for _, l := range all {
		if err := e.Batch().Set(l.key, l.value, nil); err != nil {
			return err
		}
	}
	return nil
}
