package config

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/tscache"
)

// DefaultClosedLag is how far behind the clock timestamps are closed, unless the keyspace says
// otherwise.
const DefaultClosedLag = time.Second

// Limits bound what a replica holds and does at once. Zero fields take the defaults.
type Limits struct {
	// MaxInFlight bounds the proposals of a partition that are on their way. Default 2.
	MaxInFlight int
	// MaxEntryBytes is the approximate size of an entry; a single larger write has an entry of its
	// own. Default 1 MiB.
	MaxEntryBytes int
	// MaxQueuedWrites and MaxQueuedBytes bound a partition's queue. Defaults 4,096 and 16 MiB; a
	// queue that is empty takes a write of any size.
	MaxQueuedWrites, MaxQueuedBytes int
	// MaxWaitingReads bounds the reads of a partition that wait for something in flight or for a
	// read index. Default 1,024.
	MaxWaitingReads int
	// TimestampCacheSlots bounds a partition's timestamp cache; rounded up to a power of two.
	// Default 32,768 (512 KiB). TotalReadBytes bounds the caches of all partitions of a node, in
	// bytes. Default 256 MiB.
	TimestampCacheSlots int
	TotalReadBytes      int64
	// RecentSlots bounds how many recently written keys a partition's leader remembers, to save
	// looking them up; rounded down to a power of two. Default 32,768 (768 KiB). TotalRecentBytes
	// bounds that for all partitions of a node, in bytes. Default 48 MiB.
	RecentSlots      int
	TotalRecentBytes int64
	// VacantRun is the number of consecutive keys without a value that a scan passes before it
	// remembers the span as vacant. Default 64. TotalVacantBytes bounds that memory for all
	// partitions of a node. Default 16 MiB.
	VacantRun, TotalVacantBytes int
	// MaxLocks bounds the keys of a partition that transactions may lock. Default 200,000.
	MaxLocks int
	// MaxSpanLocks bounds the spans of a partition that transactions may lock, default 256;
	// TotalSpanLocks bounds those of all partitions that a node leads, default 16,384.
	MaxSpanLocks, TotalSpanLocks int
	// MaxLockWaiters bounds the writes of a partition that wait for locks; MaxQueuedBytes bounds
	// their total size. Default 1,024.
	MaxLockWaiters int
	// PushDelay is how long writes wait for a transaction's locks before its coordinator is asked,
	// and the transaction may be aborted. Default: no time; they ask at once.
	PushDelay time.Duration
	// LoadTableBytes is the size from which a block of records is committed as a table and not as a
	// batch: a table has to be worth a file. Default 256 KiB.
	LoadTableBytes int
	// StallTimeout is the time without completion after which proposals are given up as lost, with
	// unknown outcome. Default 10 s.
	StallTimeout time.Duration
}

// EnsureDefaults fills in zero fields.
func (l *Limits) EnsureDefaults() {
	setDefault(&l.MaxInFlight, 2)
	setDefault(&l.MaxEntryBytes, 1<<20)
	setDefault(&l.MaxQueuedWrites, 4096)
	setDefault(&l.MaxQueuedBytes, 16<<20)
	setDefault(&l.MaxWaitingReads, 1024)
	setDefault(&l.TimestampCacheSlots, tscache.DefaultSlots)
	setDefault(&l.RecentSlots, 32<<10)
	setDefault(&l.VacantRun, 64)
	setDefault(&l.TotalVacantBytes, 16<<20)
	if l.TotalReadBytes <= 0 {
		l.TotalReadBytes = 256 << 20
	}
	if l.TotalRecentBytes <= 0 {
		l.TotalRecentBytes = 48 << 20
	}
	setDefault(&l.MaxLocks, 200_000)
	setDefault(&l.MaxSpanLocks, 256)
	setDefault(&l.TotalSpanLocks, 16<<10)
	setDefault(&l.MaxLockWaiters, 1024)
	setDefault(&l.LoadTableBytes, 256<<10)
	if l.StallTimeout <= 0 {
		l.StallTimeout = 10 * time.Second
	}
}

func setDefault(field *int, value int) {
	if *field <= 0 {
		*field = value
	}
}
