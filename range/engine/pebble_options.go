package engine

import (
	"runtime"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/sstable"
)

const (
	logMaxOpenFiles   = 500
	stateMaxOpenFiles = 1000

	// pebbleFormat is the format of Pebble's files in release v0.1. Opening a database with a
	// higher format raises its format for good, so a newer format needs a gate (package
	// rpc/release); with pebble.FormatNewest an update of Pebble would make a downgrade impossible.
	pebbleFormat = pebble.FormatValueSeparation

	// pebbleStopWrites is the threshold at which Pebble itself would stop writes. It is never
	// reached, because stall stops them earlier.
	pebbleStopWrites = 1 << 20

	// compactionThreshold is the number of sublevels of L0 from which on Pebble compacts.
	compactionThreshold    = 4
	logCompactionThreshold = 12

	stateBlockSize      = 16 << 10
	stateIndexBlockSize = 64 << 10
	bloomBitsPerKey     = 10
)

// logOptions are Pebble's options for a Log. Every byte is written twice (WAL, then flush) unless
// it is truncated before its memtable is flushed, which is the common case. Memtables are small all
// the same: a sync of a WAL file that is overwritten costs half as much as one of a file that
// grows, and a WAL file can be reused once its memtable was flushed.
func logOptions(o Options) *pebble.Options {
	p := commonOptions(o)
	p.Comparer = pebble.DefaultComparer
	p.MaxOpenFiles = logMaxOpenFiles
	// Nearly all entries are truncated soon, and then a compaction just drops them. Until then they
	// are read rarely, so tables may accumulate.
	p.L0CompactionThreshold = logCompactionThreshold
	// Entries are read back rarely, and then soon, so compression does not pay.
	p.ApplyCompressionSettings(
		func() pebble.DBCompressionSettings { return pebble.DBCompressionNone },
	)
	p.Experimental.ReadSamplingMultiplier = -1
	return p
}

// stateOptions are Pebble's options for a State. Keys are MVCC keys in Cockroach's encoding, so
// that columnar blocks store user key and timestamp separately, and bloom filters work on the user
// key.
func stateOptions(o Options) *pebble.Options {
	p := commonOptions(o)
	p.DisableWAL = true
	p.Comparer = &cockroachkvs.Comparer
	p.KeySchema = cockroachkvs.KeySchema.Name
	p.KeySchemas = sstable.MakeKeySchemas(&cockroachkvs.KeySchema)
	p.BlockPropertyCollectors = cockroachkvs.BlockPropertyCollectors
	p.MaxOpenFiles = stateMaxOpenFiles
	for i := range p.Levels {
		p.Levels[i].BlockSize = stateBlockSize
		p.Levels[i].IndexBlockSize = stateIndexBlockSize
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(bloomBitsPerKey)
	}
	p.ApplyCompressionSettings(
		func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest },
	)
	return p
}

func commonOptions(o Options) *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion:    pebbleFormat,
		Cache:                 o.Cache,
		CacheSize:             o.CacheBytes + 2*int64(o.MemTableBytes),
		MemTableSize:          o.MemTableBytes,
		L0CompactionThreshold: compactionThreshold,
		LBaseMaxBytes:         64 << 20,

		MemTableStopWritesThreshold: pebbleStopWrites,
		L0StopWritesThreshold:       pebbleStopWrites,
		CompactionConcurrencyRange: func() (int, int) {
			return 1, max(2, runtime.GOMAXPROCS(0)/2)
		},
	}
	// Each shard of an idle file cache costs a goroutine, and one process may hold many engines.
	p.Experimental.FileCacheShards = min(8, runtime.GOMAXPROCS(0))
	return p
}
