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

// The stages of a load, in their order. Without Presplit its stages are left out; so is the sort of
// records that come in order.
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

// LoadProgress is the progress of a load: in records, or in the stages of Presplit in partitions.
// Total is 0 if it is not known.
type LoadProgress struct {
	Stage       LoadStage
	Done, Total uint64
}

// Loaded is the result of a load.
type Loaded struct {
	// Records counts the records that were read, Replaced those that a later record of the same key
	// replaced. Bytes is the total size of keys and values.
	Records, Replaced, Bytes uint64
	// Written counts the records that are certainly written, Present those that were there before
	// with the same value. Expired counts those of Records that had expired when they were read, by
	// the clock of this process: their keys have no value afterwards.
	Written, Present, Expired uint64
	// InOrder is set if the records came in the order of their keys, and were not sorted. Spilled
	// is the number of bytes that went to a temporary file to be sorted.
	InOrder bool
	Spilled uint64
	// Splits counts the partitions that Presplit has split off, of Planned. Notes say in words what
	// it could not do.
	Splits, Planned int
	Notes           []string
}

// LoadOption is an option of Load: Presplit, ReadOnce, LoadMemory, LoadDirectory, OnLoadProgress;
// or TTL, NoTTL, which set how long loaded values live whose Expires is not set.
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

// DefaultLoadMemory bounds the memory in which a load sorts.
const DefaultLoadMemory = 256 << 20

// Presplit splits partitions and spreads them over the nodes before anything is written, so that
// each gets about half of the size at which it would split by itself.
func Presplit() LoadOption { return loadOption(func(s *loadSettings) { s.presplit = true }) }

// ReadOnce means that the records can be read only once, like those of a pipe. Records that do not
// fit into memory then go to a temporary file, even if they are in order.
func ReadOnce() LoadOption { return loadOption(func(s *loadSettings) { s.once = true }) }

// LoadMemory bounds the memory in which a load sorts, 16 MiB at least; up to 64 MiB of blocks on
// their way come in addition. The default is DefaultLoadMemory.
func LoadMemory(bytes int) LoadOption {
	return loadOption(func(s *loadSettings) { s.memory = bytes })
}

// LoadDirectory is where the temporary file is made, if one is needed. The default is the system's
// directory for such files.
func LoadDirectory(dir string) LoadOption {
	return loadOption(func(s *loadSettings) { s.dir = dir })
}

// OnLoadProgress sets a function that is called now and then, never twice at the same time.
func OnLoadProgress(f func(LoadProgress)) LoadOption {
	return loadOption(func(s *loadSettings) { s.progress = f })
}

// Load writes many records, much faster than puts. records returns them, in any order; of records
// with the same key the last one counts. It is called once or twice, with ReadOnce once; it may
// reuse the memory of a pair for the next one.
//
// A record whose Expires is set lives until then; if that is in the past, its key has no value
// afterwards.
//
// The records are sorted, and written in blocks of a few megabytes. Each block is atomic, at one
// timestamp; the load as a whole is not. A record is not written again if its key has the same
// value with the same expiry already. If the options or the keyspace set the lifetime of the
// record, it is enough that at least half of that time is left, and not more than all of it. So a
// load that ends early, with its context, an error or the process, is repeated as a whole: present
// records are only compared. After an error Loaded says what is certainly written.
//
// It is a write like others: transactions and reads at earlier timestamps see nothing of it, and it
// waits for locks. While a block is on its way to the log, other writes of its partition wait.
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

// told returns the function that is told of progress; nil if there is none.
func (s *loadSettings) told() func(load.Progress) {
	if s.progress == nil {
		return nil
	}
	return func(p load.Progress) { s.progress(LoadProgress{LoadStage(p.Stage), p.Done, p.Total}) }
}

// checked returns the records of pairs, and an error for a pair that cannot be written.
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

// record checks a pair.
func (k *Keyspace) record(p Pair) (sorting.Record, error) {
	// A pair without an expiry leaves it to the request, for all of them (LoadRequest.ttl).
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
