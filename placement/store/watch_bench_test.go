package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// One writer, 10,000 keys, and watches of one key or of a hundred, 50 in a stream: what a watch to
// which nothing happens takes, and how many events a second of processor time delivers, writing
// included.
func BenchmarkWatchers(b *testing.B) {
	for _, watches := range []int{0, 10_000, 100_000} {
		b.Run(fmt.Sprint(watches), func(b *testing.B) {
			c := newCore(b, 1, func(config *Config) { config.MaxWatchers = 1_000_000 })
			defer c.close()
			c.elect(c.members[0])
			s := c.members[0].store
			const many, perStream = 10_000, 50
			key := func(i int) []byte { return fmt.Appendf(nil, "service/%06d", i%many) }
			before := heapBytes()
			var streams []*watch.Stream
			for i := range watches {
				if i%perStream == 0 {
					stream, err := s.NewWatchStream()
					if err != nil {
						b.Fatal(err)
					}
					defer stream.Close()
					streams = append(streams, stream)
				}
				o := watch.Options{Span: keys.Point(key(i))}
				if i%10 == 0 {
					o.Span = keys.PrefixSpan(key(i)[:len(key(i))-2])
				}
				if _, err := streams[len(streams)-1].Add(int64(i%perStream), o); err != nil {
					b.Fatal(err)
				}
			}
			held := heapBytes() - before
			var delivered atomic.Int64
			var takers sync.WaitGroup
			for _, stream := range streams {
				takers.Go(func() {
					for {
						taken, err := stream.Next(context.Background())
						if err != nil {
							if !errors.Is(err, watch.ErrClosed) {
								b.Error(err)
							}
							return
						}
						for _, d := range taken {
							delivered.Add(int64(len(d.Events)))
						}
					}
				})
			}
			start := processorTime(b)
			b.ResetTimer()
			for i := range b.N {
				do(b, s, writes(Put(key(i*7919), []byte("value"))))
			}
			for _, stream := range streams {
				for {
					if _, ok := stream.Progress(s.Revision()); ok {
						break
					}
					runtime.Gosched()
				}
			}
			b.StopTimer()
			if watches > 0 {
				b.ReportMetric(float64(held)/float64(watches), "bytes/watch")
			}
			used := (processorTime(b) - start).Seconds()
			b.ReportMetric(float64(delivered.Load())/used, "events/cpu-s")
			b.ReportMetric(float64(delivered.Load())/float64(b.N), "events/op")
			for _, stream := range streams {
				stream.Close()
			}
			takers.Wait()
		})
	}
}
