package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// loadChunk is the number of records that a loader takes at a time. loaders is the maximum number
// of concurrent loaders.
const (
	loadChunk = 512
	loaders   = 64
)

// Load writes the records 0..Records-1. A write that fails ends the load, unlike an operation of
// the run: a benchmark with missing records would measure something else.
func Load(ctx context.Context, target Target, cfg Config) error {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return err
	}
	source := newValues(cfg.Seed, cfg.ValueSize)
	bulk, hasBulk := target.(BulkLoader)
	workers := loaders
	if hasBulk {
		workers = 8 // each call is already concurrent inside
	}
	var next, done atomic.Uint64
	group, groupCtx := errgroup.WithContext(ctx)
	for worker := range workers {
		random := newRandom(cfg.Seed^0x6c6f6164, worker)
		group.Go(func() error {
			for {
				from := next.Add(loadChunk) - loadChunk
				if from >= cfg.Records {
					return nil
				}
				to := min(from+loadChunk, cfg.Records)
				records := make([]Record, 0, to-from)
				for n := from; n < to; n++ {
					records = append(records, Record{Key: appendKey(nil, cfg.KeyPrefix, n),
						Value: source.draw(random)})
				}
				if hasBulk {
					if err := bulk.Load(groupCtx, records); err != nil {
						return err
					}
					done.Add(uint64(len(records)))
					continue
				}
				for _, record := range records {
					if err := target.Put(groupCtx, record.Key, record.Value); err != nil {
						return err
					}
					done.Add(1)
				}
			}
		})
	}
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		reportLoad(cfg, &done, stop)
	}()
	err = group.Wait()
	close(stop)
	<-stopped
	if err != nil {
		return fmt.Errorf("load: stopped after %d of %d records: %w", done.Load(), cfg.Records, err)
	}
	return nil
}

func reportLoad(cfg Config, done *atomic.Uint64, stop <-chan struct{}) {
	if cfg.Progress == nil {
		return
	}
	start := time.Now()
	lastLook, last := start, uint64(0)
	tick := time.NewTicker(cfg.ProgressInterval)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-stop:
			ended = true
		case <-tick.C:
		}
		now, count := time.Now(), done.Load()
		p := Progress{Phase: "load", Elapsed: now.Sub(start), Records: count,
			RecordsTotal: cfg.Records}
		if interval := now.Sub(lastLook); interval > 0 {
			p.Rate = float64(count-last) / interval.Seconds()
		}
		lastLook, last = now, count
		cfg.Progress(p)
	}
}
