package keys

import "time"

// The limits of transactions that hold locks of a keyspace.
const (
	// DefaultTransactionAge is how long after its beginning an attempt may hold locks. It is the
	// default GC window: a transaction that has read cannot commit much later anyway.
	DefaultTransactionAge = time.Hour
	// DefaultTransactionIdle is for how long its application may make no call meanwhile. It is
	// longer than the time-outs that applications give their calls to other services, and than a
	// person needs for a line.
	DefaultTransactionIdle = 2 * time.Minute
	// MinTransactionLimit and MaxTransactionLimit bound what a keyspace may say. Without any limit
	// every start of a transaction would be believable.
	MinTransactionLimit = time.Second
	MaxTransactionLimit = 7 * 24 * time.Hour
)
