package store

import (
	"crypto/rand"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/engine"
)

// BenchmarkDeleteMany measures how long a deletion of many keys at one revision stops the log, and
// then their compaction, with values of 500 bytes on a disk.
func BenchmarkDeleteMany(b *testing.B) {
	for _, keys := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				deleteMany(b, keys)
			}
		})
	}
}

// threadTime is the processor time of this goroutine, which has a thread of its own. On a machine
// that does other work it says more than the time does.
func threadTime(b *testing.B) time.Duration {
	const rusageThread = 1
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		b.Skip("no processor time of a thread: ", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func deleteMany(b *testing.B, keys int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	state, err := engine.OpenState(engine.Options{FS: vfs.Default, Dir: b.TempDir(),
		CacheBytes: 256 << 20, MemTableBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	c := &core{t: b, term: 1}
	m := &member{core: c, id: 1, state: state}
	if m.store, err = New(Config{State: state, Group: m, Random: rand.Reader, HistoryFor: -1,
		MaxTouched: keys}); err != nil {
		b.Fatal(err)
	}
	c.members = []*member{m}
	c.elect(m)
	defer c.close()
	value := make([]byte, 500)
	_, _ = rand.Read(value)
	for i := 0; i < keys; {
		command := writes()
		for range 1000 {
			t := command.GetTxn()
			t.Success = append(t.Success, Put(fmt.Appendf(nil, "k%09d", i), value))
			i++
		}
		do(b, m.store, command)
		c.log[len(c.log)-1].Data = nil
	}
	timed := func(what string, f func()) {
		b.StartTimer()
		began, used := time.Now(), threadTime(b)
		f()
		elapsed := time.Since(began)
		used = threadTime(b) - used
		b.StopTimer()
		per := float64(keys) / 10_000
		b.ReportMetric(float64(elapsed.Milliseconds())/per, "ms/10000-"+what)
		b.ReportMetric(float64(used.Milliseconds())/per, "cpu-ms/10000-"+what)
	}
	command := writes(deletePrefix([]byte("k")))
	timed("weighed", func() {
		if err := m.store.CheckWork(command.GetTxn()); err != nil {
			b.Fatal(err)
		}
	})
	timed("deleted", func() {
		if _, err := m.store.DoOwn(b.Context(), command); err != nil {
			b.Fatal(err)
		}
	})
	timed("compacted", func() {
		put(b, m.store, "x", "")
		do(b, m.store, Compact(m.store.Revision()))
	})
}
