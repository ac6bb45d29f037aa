package kv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
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
	l := &loader{keyspace: k, id: ks.ID, settings: settings, records: records,
		lanes: map[keys.PartitionID]chan struct{}{}, slots: make(chan struct{}, loadInFlight),
		telling: make(chan struct{}, 1)}
	err = l.run(ctx)
	if l.sorter != nil {
		if closeErr := l.sorter.Close(); err == nil {
			err = closeErr
		}
	}
	return l.loaded, wrap(op, k.name, nil, err)
}

// loader is a load under way.
type loader struct {
	keyspace *Keyspace
	id       keys.KeyspaceID
	settings loadSettings
	records  func() iter.Seq2[Pair, error]

	// loaded is the caller's goroutine's, but Written and Present, which mu guards.
	loaded Loaded
	sample sorting.Sample
	// sorter has the records; nil if they are in order, and are read again.
	sorter *sorting.Sorter

	slots chan struct{}
	mu    sync.Mutex
	lanes map[keys.PartitionID]chan struct{}
	// moved is when a block was written last.
	moved time.Time
	// telling is held by the goroutine that tells of progress; capacity 1. told is what was told
	// last, and when.
	telling chan struct{}
	told    LoadProgress
	toldAt  time.Time
	// now is what the cluster's clock showed at asked; zero until a record has an expiry. They are
	// the caller's goroutine's.
	now   Timestamp
	asked time.Time
}

// clusterNow is what the cluster's clock shows, in nanoseconds since 1970: records expire by that
// clock.
func (l *loader) clusterNow(ctx context.Context) (int64, error) {
	if l.now.IsZero() {
		var err error
		if l.now, err = l.keyspace.client.Now(ctx); err != nil {
			return 0, err
		}
		l.asked = time.Now()
	}
	return l.now.Wall + int64(time.Since(l.asked)), nil
}

// toldEvery is how often progress is told at most while records are read. Blocks are few.
const toldEvery = 50 * time.Millisecond

// tell tells of progress.
func (l *loader) tell(p LoadProgress) {
	if l.settings.progress == nil {
		return
	}
	l.telling <- struct{}{}
	defer func() { <-l.telling }()
	now := time.Now()
	if p.Stage == l.told.Stage && p.Stage != LoadWriting && now.Sub(l.toldAt) < toldEvery &&
		p.Done != p.Total {
		return
	}
	l.told, l.toldAt = p, now
	l.settings.progress(p)
}

func (l *loader) run(ctx context.Context) error {
	if err := l.read(ctx); err != nil || l.loaded.Records == 0 {
		return err
	}
	if l.settings.presplit {
		if err := l.presplit(ctx); err != nil {
			return err
		}
	}
	return l.write(ctx)
}

// read reads the records for the first time, and for a second one if there are too many to be
// sorted in memory, and that was not known before.
func (l *loader) read(ctx context.Context) error {
	l.sorter = sorting.New(l.settings.memory, l.settings.dir)
	inOrder := true
	var last []byte
	err := l.each(ctx, LoadReading, func(p sorting.Record) error {
		size := len(p.Key) + len(p.Value)
		if moment, ok := p.Lifetime.Moment(); ok {
			now, err := l.clusterNow(ctx)
			if err != nil {
				return err
			}
			if moment <= now {
				l.loaded.Expired++
			}
		}
		inOrder = inOrder && (l.loaded.Records == 0 || bytes.Compare(last, p.Key) < 0)
		last = append(last[:0], p.Key...)
		l.loaded.Records++
		l.loaded.Bytes += uint64(size)
		l.sample.Note(p.Key, size)
		if l.sorter != nil && inOrder && !l.settings.once && l.sorter.Full(size) {
			// It may be in order to the end: then nothing has to be sorted, nor kept.
			err := l.sorter.Close()
			l.sorter = nil
			return err
		}
		if l.sorter == nil {
			return nil
		}
		return l.sorter.Add(p)
	})
	if err != nil {
		return err
	}
	l.loaded.InOrder = inOrder
	if l.sorter == nil && !inOrder {
		l.sorter = sorting.New(l.settings.memory, l.settings.dir)
		if err := l.each(ctx, LoadSorting, func(p sorting.Record) error {
			return l.sorter.Add(p)
		}); err != nil {
			return err
		}
	}
	if l.sorter != nil {
		l.sorter.Sort()
		l.loaded.Spilled = l.sorter.Spilled()
	}
	return nil
}

// each calls visit for each record, checked.
func (l *loader) each(ctx context.Context, stage LoadStage, visit func(sorting.Record) error) error {
	n := uint64(0)
	for p, err := range l.records() {
		var record sorting.Record
		if err == nil {
			record, err = l.record(p)
		}
		if n%256 == 0 && err == nil {
			l.tell(LoadProgress{Stage: stage, Done: n, Total: l.totalOf(stage)})
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := visit(record); err != nil {
			return err
		}
		n++
	}
	l.tell(LoadProgress{Stage: stage, Done: n, Total: n})
	if stage != LoadReading && n != l.loaded.Records {
		return errChanged
	}
	return ctx.Err()
}

// record checks a pair.
func (l *loader) record(p Pair) (sorting.Record, error) {
	// Where a pair says nothing the request does, for all of them (LoadRequest.ttl).
	lifetime, err := p.lifetimeOf(keys.DefaultLifetime)
	wrong := ""
	if err != nil {
		wrong = err.Error()
	}
	return sorting.Record{Key: p.Key, Value: p.Value, Lifetime: lifetime},
		l.keyspace.check("load", p.Key, p.Value, wrong)
}

func (l *loader) totalOf(stage LoadStage) uint64 {
	if stage == LoadReading {
		return 0
	}
	return l.loaded.Records
}

// errChanged is for records that are others when they are read again.
var errChanged = errors.New("the records are not the same when they are read a second time; what " +
	"they are read from must not change while it is loaded")

// sorted are the records in order, in streams that can be read at the same time.
func (l *loader) sorted(ks *route.Keyspace) (streams []iter.Seq2[sorting.Record, error]) {
	if l.sorter == nil {
		return append(streams, l.again())
	}
	if !l.sorter.InMemory() || ks.Hashed() {
		return append(streams, l.sorter.Sorted())
	}
	// Of each partition by itself, so that not all that is on its way goes to one of them.
	for _, p := range ks.Partitions() {
		streams = append(streams, l.sorter.Between(p.Span.Start, p.Span.End))
	}
	return streams
}

// again reads the records once more, which were in order.
func (l *loader) again() iter.Seq2[sorting.Record, error] {
	return func(yield func(sorting.Record, error) bool) {
		var last []byte
		n := uint64(0)
		for p, err := range l.records() {
			var record sorting.Record
			if err == nil {
				record, err = l.record(p)
			}
			if err == nil && n > 0 && bytes.Compare(last, p.Key) >= 0 {
				err = errChanged
			}
			n++
			last = append(last[:0], p.Key...)
			if !yield(record, err) || err != nil {
				return
			}
		}
		if n != l.loaded.Records {
			yield(sorting.Record{}, errChanged)
		}
	}
}

// note says in words what did not work out, and is no error.
func (l *loader) note(format string, args ...any) {
	l.loaded.Notes = append(l.loaded.Notes, fmt.Sprintf(format, args...))
}
