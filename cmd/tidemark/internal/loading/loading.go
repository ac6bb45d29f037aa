package loading

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Destination writes the records.
type Destination interface {
	// Partition returns the partition of a key; keys of one partition can be committed together.
	Partition(ctx context.Context, key []byte) (uint64, error)
	// Commit writes records of one partition, no two with the same key, atomically.
	Commit(ctx context.Context, records []records.Record) error
}

// Options limit the work. Zero means the default.
type Options struct {
	// BatchRecords and BatchBytes end a batch: 512 and 1 MiB. A single larger record is a batch of
	// its own.
	BatchRecords, BatchBytes int
	// InFlight is the largest number of batches under way. Default 16.
	InFlight int
	// Gathered is the largest number of bytes in unfinished batches of all partitions. Default 64
	// MiB.
	Gathered int
	// Progress, if set, is called by the caller's goroutine now and then with the number of records
	// written.
	Progress func(written uint64)
}

func (o Options) withDefaults() Options {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&o.BatchRecords, 512)
	set(&o.BatchBytes, 1<<20)
	set(&o.InFlight, 16)
	set(&o.Gathered, 64<<20)
	return o
}

// batch collects records for one partition. At most one earlier batch of the partition is being
// written.
type batch struct {
	records []records.Record
	places  map[string]int // of keys in records
	lines   int            // records, including those that a later one of the same key replaced
	size    int
	busy    chan struct{} // closed when the batch under way is done; nil if there is none
}

// loader is one load under way.
type loader struct {
	to        Destination
	options   Options
	gathering map[uint64]*batch
	gathered  int
	slots     chan struct{}
	running   sync.WaitGroup
	// stop ends commits under way after one has failed.
	ctx  context.Context
	stop context.CancelFunc

	mu struct {
		sync.Mutex
		written uint64 // records written, including those that a later one of the same key replaced
		err     error  // the first of a commit
	}
}

// Load reads records until io.EOF and writes them. It returns the number of records that are
// certainly written, together with the error of the reader, the destination, or ctx. When the
// reader fails, the records before the bad one are written first. When ctx ends, no further batch
// is begun, and Load waits for the batches that are being written.
func Load(ctx context.Context, next func() (records.Record, error), to Destination,
	options Options) (written uint64, err error) {
	l := &loader{to: to, options: options.withDefaults(), gathering: make(map[uint64]*batch)}
	l.slots = make(chan struct{}, l.options.InFlight)
	l.ctx, l.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer l.stop()

	readErr := l.read(ctx, next)
	if ctx.Err() == nil && l.failed() == nil {
		l.flushAll(ctx)
	}
	l.running.Wait()
	l.progress()
	switch {
	case l.failed() != nil:
		return l.count(), l.failed()
	case ctx.Err() != nil:
		return l.count(), ctx.Err()
	case errors.Is(readErr, io.EOF):
		return l.count(), nil
	}
	return l.count(), readErr
}

// read collects records until the reader, a commit or the context ends it.
func (l *loader) read(ctx context.Context, next func() (records.Record, error)) error {
	for n := uint64(1); ; n++ {
		if n%256 == 0 {
			l.progress()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := l.failed(); err != nil {
				return err
			}
		}
		record, err := next()
		if err != nil {
			return err
		}
		partition, err := l.to.Partition(ctx, record.Key)
		if err != nil {
			return err
		}
		l.add(ctx, partition, record)
	}
}

func (l *loader) add(ctx context.Context, partition uint64, record records.Record) {
	in := l.gathering[partition]
	if in == nil {
		in = &batch{}
		l.gathering[partition] = in
	}
	size := len(record.Key) + len(record.Value)
	if len(in.records) > 0 && in.size+size > l.options.BatchBytes {
		l.flush(ctx, in)
	}
	if in.places == nil {
		in.places = make(map[string]int)
	}
	record.Key, record.Value = bytes.Clone(record.Key), bytes.Clone(record.Value)
	if place, twice := in.places[string(record.Key)]; twice {
		// The later record replaces the earlier one, with its expiry. Both lines are counted.
		size -= len(record.Key) + len(in.records[place].Value)
		in.records[place] = record
	} else {
		in.places[string(record.Key)] = len(in.records)
		in.records = append(in.records, record)
	}
	in.lines++
	in.size += size
	l.gathered += size
	switch {
	case len(in.records) >= l.options.BatchRecords || in.size >= l.options.BatchBytes:
		l.flush(ctx, in)
	case l.gathered >= l.options.Gathered:
		l.flushAll(ctx)
	}
}

func (l *loader) flushAll(ctx context.Context) {
	for _, in := range l.gathering {
		if len(in.records) > 0 {
			l.flush(ctx, in)
		}
	}
}

// flush sends a partition's batch after the previous one has been written.
func (l *loader) flush(ctx context.Context, in *batch) {
	gathered, lines := in.records, in.lines
	l.gathered -= in.size
	in.records, in.places, in.lines, in.size = nil, nil, 0, 0
	if in.busy != nil {
		<-in.busy
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return
	}
	if l.failed() != nil {
		<-l.slots
		return
	}
	busy := make(chan struct{})
	in.busy = busy
	l.running.Go(func() {
		defer func() { close(busy); <-l.slots }()
		err := l.to.Commit(l.ctx, gathered)
		l.mu.Lock()
		defer l.mu.Unlock()
		switch {
		case err == nil:
			l.mu.written += uint64(lines)
		case l.mu.err == nil:
			l.mu.err = err
			l.stop()
		}
	})
}

func (l *loader) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.err
}

func (l *loader) count() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.written
}

func (l *loader) progress() {
	if l.options.Progress != nil {
		l.options.Progress(l.count())
	}
}

// Check reads all records and returns their number, or the first error of the reader.
func Check(ctx context.Context, next func() (records.Record, error),
	progress func(uint64)) (count uint64, err error) {
	for {
		if count%1024 == 0 {
			if ctx.Err() != nil {
				return count, ctx.Err()
			}
			if progress != nil {
				progress(count)
			}
		}
		_, err := next()
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err != nil {
			return count, fmt.Errorf("after %s: %w", good(count), err)
		}
		count++
	}
}

// good describes a number of records in words.
func good[N int | int64 | uint64](count N) string {
	if count == 1 {
		return "1 good record"
	}
	return fmt.Sprintf("%d good records", count)
}
