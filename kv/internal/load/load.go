package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/sorting"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
)

// Stage is what a load is at.
type Stage string

// The stages of a load, in their order.
const (
	Reading   Stage = "read"
	Sorting   Stage = "sort"
	Splitting Stage = "split"
	Spreading Stage = "spread"
	Writing   Stage = "write"
)

// Progress is how far a load is in a stage. Total is 0 if it is not known.
type Progress struct {
	Stage       Stage
	Done, Total uint64
}

// Result is what a load has done: see kv.Loaded.
type Result struct {
	Records, Replaced, Bytes  uint64
	Written, Present, Expired uint64
	InOrder                   bool
	Spilled                   uint64
	Splits, Planned           int
	Notes                     []string
}

// Config is what a load needs.
type Config struct {
	Conn *conn.Conn
	// Keyspace is the name, and ID the id, of the keyspace.
	Keyspace string
	ID       keys.KeyspaceID
	// Records returns the records, checked. It is called once or twice, with Once once.
	Records func() iter.Seq2[sorting.Record, error]
	// Presplit splits partitions before anything is written.
	Presplit, Once bool
	// Lifetime is that of records without their own.
	Lifetime keys.Lifetime
	// Memory bounds the bytes that are sorted in memory; Dir is the directory of the temporary
	// file.
	Memory int
	Dir    string
	// Progress, if set, is told of progress, never twice at the same time.
	Progress func(Progress)
	// Wrap turns an error about a key into an error of package kv; Passing reports whether such an
	// error may be temporary.
	Wrap    func(key []byte, err error) error
	Passing func(error) bool
}

// Run loads the records. On an error the Result says what is certainly written.
func Run(ctx context.Context, c Config) (Result, error) {
	l := &loader{cfg: c, lanes: map[keys.PartitionID]chan struct{}{},
		slots: make(chan struct{}, loadInFlight), telling: make(chan struct{}, 1)}
	err := l.run(ctx)
	if l.sorter != nil {
		if closeErr := l.sorter.Close(); err == nil {
			err = closeErr
		}
	}
	return l.loaded, err
}

// loader is a load under way.
type loader struct {
	cfg Config

	// loaded belongs to the caller's goroutine, except for Written and Present, which mu guards.
	loaded Result
	sample sorting.Sample
	// sorter has the records; nil if they are in order, and are read again.
	sorter *sorting.Sorter

	slots chan struct{}
	mu    sync.Mutex
	lanes map[keys.PartitionID]chan struct{}
	// moved is when a block was last written.
	moved time.Time
	// telling is a lock (capacity 1) of the goroutine that reports progress. told is what was last
	// reported, and when.
	telling chan struct{}
	told    Progress
	toldAt  time.Time
	// now was the cluster's time at asked; zero until a record has an expiry. Both belong to the
	// caller's goroutine.
	now   hlc.Timestamp
	asked time.Time
}

// clusterNow returns the cluster's time, in nanoseconds since 1970: records expire by that clock.
func (l *loader) clusterNow(ctx context.Context) (int64, error) {
	if l.now.IsZero() {
		ctx, cancel := l.cfg.Conn.Bound(ctx)
		defer cancel()
		var err error
		if l.now, err = l.cfg.Conn.AskNow(ctx); err != nil {
			return 0, err
		}
		l.asked = time.Now()
	}
	return l.now.Wall + int64(time.Since(l.asked)), nil
}

// toldEvery is how often progress is told at most while records are read. Blocks are few.
const toldEvery = 50 * time.Millisecond

// tell tells of progress.
func (l *loader) tell(p Progress) {
	if l.cfg.Progress == nil {
		return
	}
	l.telling <- struct{}{}
	defer func() { <-l.telling }()
	now := time.Now()
	if p.Stage == l.told.Stage && p.Stage != Writing && now.Sub(l.toldAt) < toldEvery &&
		p.Done != p.Total {
		return
	}
	l.told, l.toldAt = p, now
	l.cfg.Progress(p)
}

func (l *loader) run(ctx context.Context) error {
	if err := l.read(ctx); err != nil || l.loaded.Records == 0 {
		return err
	}
	if l.cfg.Presplit {
		if err := l.presplit(ctx); err != nil {
			return err
		}
	}
	return l.write(ctx)
}

// read reads the records for the first time. It reads them again if there turn out to be too many
// to be sorted in memory.
func (l *loader) read(ctx context.Context) error {
	l.sorter = sorting.New(l.cfg.Memory, l.cfg.Dir)
	inOrder := true
	var last []byte
	err := l.each(ctx, Reading, func(p sorting.Record) error {
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
		if l.sorter != nil && inOrder && !l.cfg.Once && l.sorter.Full(size) {
			// The records may be in order to the end: then nothing has to be sorted, nor kept.
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
		l.sorter = sorting.New(l.cfg.Memory, l.cfg.Dir)
		if err := l.each(ctx, Sorting, func(p sorting.Record) error {
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

// each calls visit for each record.
func (l *loader) each(ctx context.Context, stage Stage, visit func(sorting.Record) error) error {
	n := uint64(0)
	for record, err := range l.cfg.Records() {
		if n%256 == 0 && err == nil {
			l.tell(Progress{Stage: stage, Done: n, Total: l.totalOf(stage)})
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
	l.tell(Progress{Stage: stage, Done: n, Total: n})
	if stage != Reading && n != l.loaded.Records {
		return errChanged
	}
	return ctx.Err()
}

func (l *loader) totalOf(stage Stage) uint64 {
	if stage == Reading {
		return 0
	}
	return l.loaded.Records
}

// errChanged: the second reading of the records has returned other records.
var errChanged = errors.New("the records are not the same when they are read a second time; what " +
	"they are read from must not change while it is loaded")

// sorted are the records in order, in streams that can be read at the same time.
func (l *loader) sorted(ctx context.Context, ks *route.Keyspace) (
	streams []iter.Seq2[sorting.Record, error], err error) {
	if l.sorter == nil {
		return append(streams, l.again()), nil
	}
	if !l.sorter.InMemory() || ks.Hashed() {
		return append(streams, l.sorter.Sorted()), nil
	}
	// A stream for each partition, so that the blocks on their way do not all go to one of them. The
	// table may not show all partitions yet: a stream for each one that it shows would leave records
	// out.
	bounded, cancel := l.cfg.Conn.Bound(ctx)
	defer cancel()
	parts, err := l.cfg.Conn.Sender.PartitionsOf(bounded, l.cfg.ID, keys.Span{})
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		streams = append(streams, l.sorter.Between(p.Span.Start, p.Span.End))
	}
	return streams, nil
}

// again reads the records again, which were in order.
func (l *loader) again() iter.Seq2[sorting.Record, error] {
	return func(yield func(sorting.Record, error) bool) {
		var last []byte
		n := uint64(0)
		for record, err := range l.cfg.Records() {
			if err == nil && n > 0 && bytes.Compare(last, record.Key) >= 0 {
				err = errChanged
			}
			n++
			last = append(last[:0], record.Key...)
			if !yield(record, err) || err != nil {
				return
			}
		}
		if n != l.loaded.Records {
			yield(sorting.Record{}, errChanged)
		}
	}
}

// note notes, in words, what failed without being an error.
func (l *loader) note(format string, args ...any) {
	l.loaded.Notes = append(l.loaded.Notes, fmt.Sprintf(format, args...))
}
