package kv

import (
	"context"
	"errors"
	"iter"

	"github.com/tidemarkdb/tidemark/kv/internal/load"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// LoadStage is what a load is at.
type LoadStage string

// The stages of a load, in their order. Those of Presplit, and the sort of what came in order, are
// left out.
const (
	// LoadReading: the records are read, and sorted as far as they have room in memory.
	LoadReading LoadStage = "read"
	// LoadSorting: they are read again and sorted, for there are more of them.
	LoadSorting LoadStage = "sort"
	// LoadSplitting: partitions are being split.
	LoadSplitting LoadStage = "split"
	// LoadSpreading: partitions, and their leaders, move to nodes that have fewer.
	LoadSpreading LoadStage = "spread"
	// LoadWriting: blocks of records are written.
	LoadWriting LoadStage = "write"
)

// LoadProgress is how far a load is: of how many records, or in the stages of Presplit of how many
// partitions. Total is 0 if it is not known.
type LoadProgress struct {
	Stage       LoadStage
	Done, Total uint64
}

// Loaded is what a load has done.
type Loaded struct {
	// Records is how many were read, Replaced how many of them a later record of the same key took
	// the place of. Bytes is how large keys and values are together.
	Records, Replaced, Bytes uint64
	// Written is how many records are certainly written, Present how many were there before with the
	// same value. Expired is how many of Records had expired when they were read, by the clock of this
	// process: their keys have no value afterwards.
	Written, Present, Expired uint64
	// InOrder: they came in the order of their keys, and were not sorted. Spilled is how many bytes
	// went to a temporary file to be sorted.
	InOrder bool
	Spilled uint64
	// Splits is how many partitions Presplit has split off, of Planned. Notes say in words what it
	// could not do.
	Splits, Planned int
	Notes           []string
}

// LoadOption says how Load works: Presplit, ReadOnce, LoadMemory, LoadDirectory, OnLoadProgress; or
// how long the loaded values live whose Expires is not set: TTL, NoTTL.
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

// DefaultLoadMemory is how much a load keeps in memory to sort it.
const DefaultLoadMemory = 256 << 20

// Presplit has partitions split and spread over the nodes before anything is written, so that each
// gets about half of the size at which it would split by itself.
func Presplit() LoadOption { return loadOption(func(s *loadSettings) { s.presplit = true }) }

// ReadOnce says that the records can be read only once, as those of a pipe. What does not fit into
// memory goes to a temporary file then, even if it is in order.
func ReadOnce() LoadOption { return loadOption(func(s *loadSettings) { s.once = true }) }

// LoadMemory bounds what a load keeps in memory to sort it, 16 MiB at least; the blocks on their
// way come in addition, up to 64 MiB. The default is DefaultLoadMemory.
func LoadMemory(bytes int) LoadOption {
	return loadOption(func(s *loadSettings) { s.memory = bytes })
}

// LoadDirectory is where the temporary file is made, if one is needed. The default is the system's
// directory for such files.
func LoadDirectory(dir string) LoadOption {
	return loadOption(func(s *loadSettings) { s.dir = dir })
}

// OnLoadProgress has f called now and then, never twice at the same time.
func OnLoadProgress(f func(LoadProgress)) LoadOption {
	return loadOption(func(s *loadSettings) { s.progress = f })
}

// Load writes many records, much faster than puts. records returns them, in any order; of records
// of the same key the last one counts. It is called once or twice, with ReadOnce once; the memory
// of a pair may be used again for the next one.
//
// A record whose Expires is set lives until then, and one that is past leaves its key without a
// value.
//
// The records are sorted, and written in blocks of a few megabytes. Each block is atomic, at one
// timestamp, and the load as a whole is not. A record whose key has the same value already is not
// written again, if its expiry is the same. Of a record that lives as the options or the keyspace
// say it is enough that at least half of that time is left, and not more than all of it. So if a
// load ends early, with its context, an error or the process, it is repeated as a whole: what is
// there is only compared. On an error Loaded says what is certainly written.
//
// It is a write like others: transactions and reads of earlier timestamps see nothing of it, and it
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

// told is who is told of progress; nil: nobody is.
func (s *loadSettings) told() func(load.Progress) {
	if s.progress == nil {
		return nil
	}
	return func(p load.Progress) { s.progress(LoadProgress{LoadStage(p.Stage), p.Done, p.Total}) }
}

// checked are the records of pairs that can be written.
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
	// Where a pair says nothing the request does, for all of them (LoadRequest.ttl).
	lifetime, err := p.lifetimeOf(keys.DefaultLifetime)
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	return sorting.Record{Key: p.Key, Value: p.Value, Lifetime: lifetime},
		k.check("load", p.Key, p.Value, wrong)
}

// mayPass reports whether what was in the way of a load may pass.
func mayPass(err error) bool {
	for _, kind := range [...]ErrorKind{ErrUnavailable, ErrNoQuorum, ErrOverloaded, ErrOutcomeUnknown,
		ErrConflict} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
