package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// limit is one figure of the machine's capability, without a store.
type limit struct {
	Name       string        `json:"name"`
	Callers    int           `json:"callers"`
	Throughput float64       `json:"throughput"`
	P50        time.Duration `json:"p50"`
	P99        time.Duration `json:"p99"`
	// CPUPerThousand is the processor seconds per 1,000 operations of the process that does the work:
	// the echo's server, or this process for the other limits.
	CPUPerThousand float64 `json:"cpu_seconds_per_1000"`
}

// measureLimits measures each limit for the given time: an echo over gRPC, synced commits of
// Pebble, and fdatasync.
func measureLimits(
	ctx context.Context, dir string, each time.Duration, valueSize int,
) ([]limit, error) {
	var limits []limit
	for _, callers := range []int{1, 64, 256} {
		l, err := measureEcho(ctx, filepath.Join(dir, "echo.log"), callers, each, valueSize)
		if err != nil {
			return limits, fmt.Errorf("gRPC echo: %w", err)
		}
		limits = append(limits, l)
	}
	for _, callers := range []int{1, 64, 256} {
		l, err := measurePebble(ctx, filepath.Join(dir, fmt.Sprintf("pebble-%d", callers)), callers,
			each, valueSize)
		if err != nil {
			return limits, fmt.Errorf("synced commits of Pebble: %w", err)
		}
		limits = append(limits, l)
	}
	for _, overwrite := range []bool{false, true} {
		l, err := measureSync(ctx, filepath.Join(dir, "sync"), overwrite, each, valueSize)
		if err != nil {
			return limits, fmt.Errorf("fdatasync: %w", err)
		}
		limits = append(limits, l)
	}
	return limits, nil
}

// closedLoop has callers call repeatedly for a while, and reports the results. The processor time
// is that of the process with the given number.
func closedLoop(
	ctx context.Context, name string, pid, callers int, each time.Duration,
	call func(ctx context.Context, caller int) error,
) (limit, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	var (
		group    sync.WaitGroup
		mu       sync.Mutex
		merged   = hdrhistogram.New(1, int64(time.Minute), 3)
		failures []error
		count    atomic.Int64
	)
	before, err := process.ReadUsage(pid)
	if err != nil {
		return limit{}, err
	}
	begin := time.Now()
	for caller := range callers {
		group.Go(func() {
			own := hdrhistogram.New(1, int64(time.Minute), 3)
			for ctx.Err() == nil {
				start := time.Now()
				if err := call(context.WithoutCancel(ctx), caller); err != nil {
					mu.Lock()
					failures = append(failures, err)
					mu.Unlock()
					return
				}
				if err := own.RecordValue(max(int64(time.Since(start)), 1)); err != nil {
					continue // a call of more than a minute is beyond the histogram
				}
				count.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			merged.Merge(own)
		})
	}
	group.Wait()
	elapsed := time.Since(begin)
	if err := errors.Join(failures...); err != nil {
		return limit{}, err
	}
	after, err := process.ReadUsage(pid)
	if err != nil {
		return limit{}, err
	}
	return limit{
		Name:           name,
		Callers:        callers,
		Throughput:     float64(count.Load()) / elapsed.Seconds(),
		P50:            time.Duration(merged.ValueAtQuantile(50)),
		P99:            time.Duration(merged.ValueAtQuantile(99)),
		CPUPerThousand: perThousand(after.CPUSeconds()-before.CPUSeconds(), count.Load()),
	}, nil
}

// perThousand returns the seconds per 1,000 operations, or 0 if there were none.
func perThousand(seconds float64, operations int64) float64 {
	if operations == 0 {
		return 0
	}
	return seconds / float64(operations) * 1000
}

// measurePebble measures the cost of a durable write alone: one database, default options, each
// commit synced.
func measurePebble(
	ctx context.Context, dir string, callers int, each time.Duration, size int,
) (limit, error) {
	db, err := pebble.Open(dir, &pebble.Options{Logger: silent{}})
	if err != nil {
		return limit{}, err
	}
	value := make([]byte, size)
	var sequence atomic.Uint64
	result, err := closedLoop(ctx, "Pebble synced commit", os.Getpid(), callers, each,
		func(context.Context, int) error {
			key := fmt.Appendf(nil, "key%016d", sequence.Add(1))
			return db.Set(key, value, pebble.Sync)
		})
	return result, errors.Join(err, db.Close())
}

// silent is a Pebble logger that logs only errors that end the process.
type silent struct{ pebble.Logger }

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(format string, arguments ...any) {
	pebble.DefaultLogger.Fatalf(format, arguments...)
}

// measureSync measures the disk alone: a write of the given size followed by fdatasync. The writes
// are at the end of a growing file, or repeatedly in an existing file, for which the filesystem
// need not store a new length.
func measureSync(
	ctx context.Context, path string, overwrite bool, each time.Duration, size int,
) (limit, error) {
	name := "fdatasync, append"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return limit{}, err
	}
	defer os.Remove(path)
	const length = 1 << 22
	if overwrite {
		name = "fdatasync, overwrite"
		if _, err := file.Write(make([]byte, length)); err != nil {
			return limit{}, errors.Join(err, file.Close())
		}
		if err := file.Sync(); err != nil {
			return limit{}, errors.Join(err, file.Close())
		}
	}
	payload := make([]byte, size)
	var offset int64
	result, err := closedLoop(ctx, name, os.Getpid(), 1, each, func(context.Context, int) error {
		if _, err := file.WriteAt(payload, offset); err != nil {
			return err
		}
		offset += int64(size)
		if overwrite && offset+int64(size) > length {
			offset = 0
		}
		return unix.Fdatasync(int(file.Fd()))
	})
	return result, errors.Join(err, file.Close())
}
