package bench

import "context"

// Transactor is a store with transactions. Its methods are called from many goroutines at once;
// slices are as in Target.
type Transactor interface {
	Target
	// Update runs f in a transaction and commits it. When another one was in the way it runs f
	// again, until ctx ends.
	Update(ctx context.Context, f func(tx Tx) error) error
	// Snapshot reads keys at one moment, without locks: their values in order, nil where there is
	// none.
	Snapshot(ctx context.Context, keys [][]byte) (values [][]byte, err error)
	// PartitionOf names the partition that holds a key.
	PartitionOf(ctx context.Context, key []byte) (uint64, error)
	// Uncertain says that a failed Update may have been committed.
	Uncertain(err error) bool
	// Tally is what has been counted so far.
	Tally() Tally
}

// Tx is a transaction under way, for one goroutine.
type Tx interface {
	// Get reads a key; nil if it has no value. With lock it keeps others from writing the key until
	// the end.
	Get(ctx context.Context, key []byte, lock bool) (value []byte, err error)
	Put(key, value []byte) error
}

// Tally counts attempts of transactions: those that were committed by the way they took, those that
// had to run again by reason.
type Tally struct {
	Commits  map[string]uint64 `json:"commits"`
	Restarts map[string]uint64 `json:"restarts"`
}

// since is what was counted after `before`.
func (t Tally) since(before Tally) Tally {
	return Tally{Commits: countedSince(t.Commits, before.Commits),
		Restarts: countedSince(t.Restarts, before.Restarts)}
}

func countedSince(now, before map[string]uint64) map[string]uint64 {
	counted := make(map[string]uint64)
	for name, n := range now {
		if n > before[name] {
			counted[name] = n - before[name]
		}
	}
	return counted
}
