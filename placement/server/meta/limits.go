package meta

import "time"

// Limits and defaults of the whole cluster.
const (
	// NodeLeaseTime is how long a node counts as alive after its last heartbeat.
	NodeLeaseTime = 9 * time.Second
	// MaxPartitions and MaxKeyspaces bound the partitions and keyspaces of the cluster.
	MaxPartitions = 1_000_000
	MaxKeyspaces  = 10_000
	// A keyspace has DefaultReplicas replicas, and keeps old versions for DefaultGCWindow, unless it
	// says otherwise.
	DefaultReplicas = 3
	DefaultGCWindow = time.Hour
	// ClosedTimestampLag is how far the closed timestamps of new keyspaces lag behind the clock.
	ClosedTimestampLag = time.Second
)
