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

	// pebbleFormat is the format of Pebble's files of release v0.1. Pebble raises the format of a
	// database for good when the database is opened with a higher one, so a newer format needs a gate
	// (package rpc/release), and pebble.FormatNewest would take the way back with an update of
	// Pebble.
	pebbleFormat = pebble.FormatValueSeparation

	// pebbleStopWrites is where Pebble itself would hold writes up: never, as stall does it before.
	pebbleStopWrites = 1 << 20

	// compactionThreshold is about from how many sublevels of L0 on Pebble compacts.
	compactionThreshold    = 4
	logCompactionThreshold = 12

	stateBlockSize      = 16 << 10
	stateIndexBlockSize = 64 << 10
	bloomBitsPerKey     = 10
)

// logOptions: every byte is written twice (WAL, then flush) unless it is truncated before its
// memtable is flushed, which is the common case. Memtables are small all the same: a WAL file that
// is overwritten costs half as much to sync as one that grows, and files come back for reuse when
// their memtable was flushed.
func logOptions(o Options) *pebble.Options {
	p := commonOptions(o)
	p.Comparer = pebble.DefaultComparer
	p.MaxOpenFiles = logMaxOpenFiles
	// Nearly all entries are truncated before long, and then a compaction just drops them. Until
	// then they are read rarely: files may gather.
	p.L0CompactionThreshold = logCompactionThreshold
	// Entries are read back rarely, and then soon: not worth compressing.
	p.ApplyCompressionSettings(
		func() pebble.DBCompressionSettings { return pebble.DBCompressionNone },
	)
	p.Experimental.ReadSamplingMultiplier = -1
	return p
}

// stateOptions: keys are MVCC keys in Cockroach's encoding, so that columnar blocks know user key
// and timestamp apart, and bloom filters work on the user key.
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
	// Idle file cache shards cost a goroutine each, and one process may hold many engines.
	p.Experimental.FileCacheShards = min(8, runtime.GOMAXPROCS(0))
	return p
}
