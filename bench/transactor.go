package bench

import "context"

// Transactor is a store with transactions. Its methods are called from many goroutines at once. For
// slices the rules of Target apply.
type Transactor interface {
	Target
	// Update runs f in a transaction and commits the transaction. After a conflict it runs f again,
	// until ctx ends.
	Update(ctx context.Context, f func(tx Tx) error) error
	// Snapshot reads keys at one moment, without locks. It returns the values in the order of the
	// keys, with nil for a key without a value.
	Snapshot(ctx context.Context, keys [][]byte) (values [][]byte, err error)
	// PartitionOf returns the partition that holds a key.
	PartitionOf(ctx context.Context, key []byte) (uint64, error)
	// Uncertain reports whether a failed Update may have been committed.
	Uncertain(err error) bool
	// Tally returns the counts so far.
	Tally() Tally
}

// Tx is a transaction under way, for one goroutine.
type Tx interface {
	// Get reads a key. It returns nil if the key has no value. With lock, others cannot write the key
	// until the end of the transaction.
	Get(ctx context.Context, key []byte, lock bool) (value []byte, err error)
	Put(key, value []byte) error
}

// Tally counts attempts of transactions: committed attempts by the kind of commit, and attempts
// that had to run again by reason.
type Tally struct {
	Commits  map[string]uint64 `json:"commits"`
	Restarts map[string]uint64 `json:"restarts"`
}

// since returns the counts since `before`.
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
