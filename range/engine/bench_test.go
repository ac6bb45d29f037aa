package engine

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkLogCommit is synced commits on the disk under TMPDIR, by commits at the same time and
// size of memtables (and so of WAL files: once they are reused, a sync costs less).
func BenchmarkLogCommit(b *testing.B) {
	for _, memTable := range []uint64{4 << 20, 8 << 20, 16 << 20, 64 << 20} {
		for _, workers := range []int{1, 16} {
			b.Run(fmt.Sprintf("memtable=%dMiB/workers=%d", memTable>>20, workers),
				func(b *testing.B) {
					l, err := OpenLog(Options{FS: vfs.Default, Dir: b.TempDir() + "/log",
						MemTableBytes: memTable})
					if err != nil {
						b.Fatal(err)
					}
					defer l.Close()
					value := make([]byte, 1024)
					var n atomic.Uint64
					b.SetParallelism(workers)
					b.ReportAllocs()
					b.ResetTimer()
					b.RunParallel(func(pb *testing.PB) {
						batch := l.NewBatch()
						defer batch.Close()
						for pb.Next() {
							batch.Reset()
							i := n.Add(1)
							_ = batch.Set(fmt.Appendf(nil, "%016d", i), value, nil)
							// As a Raft log is: what was applied goes.
							if i%512 == 0 {
								_ = batch.DeleteRange(fmt.Appendf(nil, "%016d", 0),
									fmt.Appendf(nil, "%016d", i-256), nil)
							}
							if err := l.Commit(batch, true); err != nil {
								b.Error(err)
								return
							}
						}
					})
					b.StopTimer()
					m := l.Metrics()
					b.ReportMetric(float64(m.WAL.BytesWritten)/float64(b.N), "walB/op")
					b.ReportMetric(float64(flushed(l))/float64(b.N), "tableB/op")
				})
		}
	}
}

// flushed is how many bytes went to tables. Pebble counts the WAL into the flushes of its total.
func flushed(l *Log) (bytes uint64) {
	for _, level := range l.Metrics().Levels {
		bytes += level.TableBytesFlushed + level.TableBytesCompacted
	}
	return bytes
}
