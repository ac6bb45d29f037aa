package kv

import (
	"context"
	"errors"
	"iter"

	"github.com/tidemarkdb/tidemark/kv/internal/load"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// LoadStage is a stage of a load.
type LoadStage string

// The stages of a load, in their order. Without Presplit, its stages do not occur. Records that
// come in order are not sorted.
const (
	// LoadReading: the records are read, and sorted as far as they fit into memory.
	LoadReading LoadStage = "read"
	// LoadSorting: records that do not fit into memory are read again and sorted.
	LoadSorting LoadStage = "sort"
	// LoadSplitting: partitions are being split.
	LoadSplitting LoadStage = "split"
	// LoadSpreading: partitions, and their leaders, move to nodes that have fewer.
	LoadSpreading LoadStage = "spread"
	// LoadWriting: blocks of records are written.
	LoadWriting LoadStage = "write"
)

// LoadProgress is the progress of a load, in records. In the stages of Presplit it is in
// partitions. Total is 0 if it is not known.
type LoadProgress struct {
	Stage       LoadStage
	Done, Total uint64
}

// Loaded is the result of a load.
type Loaded struct {
	// Records counts the records that were read. Replaced counts the records that a later record of
	// the same key replaced. Bytes is the total size of keys and values.
	Records, Replaced, Bytes uint64
	// Written counts the records that are certainly written. Present counts the records that existed
	// before with the same value. Expired counts the records that had expired when they were read, by
	// the clock of this process: their keys have no value afterwards.
	Written, Present, Expired uint64
	// InOrder is set if the records came in the order of their keys, and were not sorted. Spilled is
	// the number of bytes that were written to a temporary file for the sort.
	InOrder bool
	Spilled uint64
	// Splits is the number of partitions that Presplit has split off. Planned is the number that it
	// wanted to split off. Notes describe what it could not do.
	Splits, Planned int
	Notes           []string
}

// LoadOption is an option of Load: Presplit, ReadOnce, LoadMemory, LoadDirectory, OnLoadProgress;
// or TTL, NoTTL, which set the lifetime of records without Expires.
type LoadOption interface{ load(*loadSettings) }

type loadOption func(*loadSettings)

func (o loadOption) load(s *loadSettings) { o(s) }

type loadSettings struct {
	presplit, once bool
	writes         writeOptions
	memory         int
	dir            string
	progress       func(LoadProgress)
}

// DefaultLoadMemory is the default limit of the memory for the sort of a load.
const DefaultLoadMemory = 256 << 20

// Presplit splits partitions and spreads them over the nodes before anything is written, so that
// each partition gets about half of the size at which it would split.
func Presplit() LoadOption { return loadOption(func(s *loadSettings) { s.presplit = true }) }

// ReadOnce says that the records can be read only once, like those of a pipe. Records that do not
// fit into memory then go to a temporary file, even if they are in order.
func ReadOnce() LoadOption { return loadOption(func(s *loadSettings) { s.once = true }) }

// LoadMemory limits the memory for the sort. The minimum is 16 MiB. Up to 64 MiB of blocks that are
// being sent come in addition. The default is DefaultLoadMemory.
func LoadMemory(bytes int) LoadOption {
	return loadOption(func(s *loadSettings) { s.memory = bytes })
}

// LoadDirectory sets the directory for the temporary file, if one is needed. The default is the
// system's directory for temporary files.
func LoadDirectory(dir string) LoadOption {
	return loadOption(func(s *loadSettings) { s.dir = dir })
}

// OnLoadProgress sets a function that is called from time to time, and never concurrently.
func OnLoadProgress(f func(LoadProgress)) LoadOption {
	return loadOption(func(s *loadSettings) { s.progress = f })
}

// Load writes many records, much faster than single puts. records returns the records, in any
// order. If several records have the same key, the last one counts. records is called once or
// twice, and with ReadOnce once. It may reuse the memory of a pair for the next one.
//
// A record with Expires lives until that time. If the time is in the past, the key has no value
// afterwards.
//
// The records are sorted, and written in blocks of a few megabytes. Each block is atomic and has
// one timestamp. The load as a whole is not atomic. A record is not written again if its key has
// the same value with the same expiry already. If the options or the keyspace set the lifetime of
// the record, its remaining lifetime may be between half of the lifetime and the whole of it. So a
// load that ended early, because of its context, an error or the end of the process, can be
// repeated as a whole: existing records are only compared. After an error, Loaded counts the
// records that are certainly written.
//
// A load is a write like others: transactions and reads at earlier timestamps do not see it, and it
// waits for locks. While a block is being written to the log, other writes of its partition wait.
func (k *Keyspace) Load(ctx context.Context, records func() iter.Seq2[Pair, error],
	options ...LoadOption) (Loaded, error) {
	const op = "load"
	settings := loadSettings{memory: DefaultLoadMemory}
	for _, o := range options {
		o.load(&settings)
	}
	if settings.writes.bad != "" {
		return Loaded{}, invalid(op, k.name, nil, "%s", settings.writes.bad)
	}
	ks, err := k.boundedResolve(ctx, op)
	if err != nil {
		return Loaded{}, err
	}
	done, err := load.Run(ctx, load.Config{Conn: k.client.conn, Keyspace: k.name, ID: ks.ID,
		Records:  func() iter.Seq2[sorting.Record, error] { return k.checked(records()) },
		Presplit: settings.presplit, Once: settings.once, Lifetime: settings.writes.lifetime,
		Memory: settings.memory, Dir: settings.dir, Progress: settings.told(),
		Wrap:    func(key []byte, err error) error { return wrap(op, k.name, key, err) },
		Passing: mayPass})
	return Loaded(done), wrap(op, k.name, nil, err)
}

// told returns the function that reports progress. It returns nil if there is none.
func (s *loadSettings) told() func(load.Progress) {
	if s.progress == nil {
		return nil
	}
	return func(p load.Progress) { s.progress(LoadProgress{LoadStage(p.Stage), p.Done, p.Total}) }
}

// checked converts pairs to records. It yields an error for a pair that cannot be written.
func (k *Keyspace) checked(pairs iter.Seq2[Pair, error]) iter.Seq2[sorting.Record, error] {
	return func(yield func(sorting.Record, error) bool) {
		for p, err := range pairs {
			var record sorting.Record
			if err == nil {
				record, err = k.record(p)
			}
			if !yield(record, err) {
				return
			}
		}
	}
}

// record checks a pair and converts it to a record.
func (k *Keyspace) record(p Pair) (sorting.Record, error) {
	// A pair without an expiry gets the lifetime of the request, which is the same for all such pairs
	// (LoadRequest.ttl).
	lifetime, err := p.lifetimeOf(keys.DefaultLifetime)
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	return sorting.Record{Key: p.Key, Value: p.Value, Lifetime: lifetime},
		k.check("load", p.Key, p.Value, wrong)
}

// mayPass reports whether an error of a load may be temporary.
func mayPass(err error) bool {
	for _, kind := range [...]ErrorKind{ErrUnavailable, ErrNoQuorum, ErrOverloaded, ErrOutcomeUnknown,
		ErrConflict} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
