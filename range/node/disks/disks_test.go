package disks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// What memtables are still to write counts as taken, and nothing is bounded while there is much
// more than the reserve.
func TestRoomForEntriesOnTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const reserve, large = 1 << 20, 5 << 19
		fs := vfs.NewMem()
		free := func(bytes uint64) {
			fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 40})
			time.Sleep(2 * time.Second) // virtual
		}
		free(1 << 40)
		log, err := engine.OpenLog(engine.Options{FS: fs, Dir: "log", MinFreeBytes: reserve})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		state, err := engine.OpenState(engine.Options{FS: fs, Dir: "state", MinFreeBytes: reserve})
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		h, err := host.New(host.Config{Self: 1, Log: log, Clock: hlc.NewClock(hlc.System(), nil)})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		d := New(&hosted.Node{Host: h, Log: log, State: state}, nil, time.Second, time.Second)
		want := func(least, most int64, full bool) {
			t.Helper()
			room := d.roomForEntries().Bytes[group.NoShare]
			if room < least || room > most || d.node.DiskFull() != full {
				t.Errorf("there is room for %d bytes, want %d to %d; full: %t", room, least, most,
					d.node.DiskFull())
			}
		}
		const kept = reserve - reserve/spareRoom
		want(host.Unbounded, host.Unbounded, false)
		free(nearReserves*reserve - 1)
		want((nearReserves-1)*reserve, nearReserves*reserve-kept, false)
		batch := log.NewBatch()
		defer batch.Close()
		if err := batch.Set([]byte("k"), make([]byte, large), nil); err != nil {
			t.Fatal(err)
		}
		if err := log.Commit(batch, true); err != nil {
			t.Fatal(err)
		}
		free(4 * reserve)
		want(4*reserve-large-kept-1000, 4*reserve-large-kept, false)
		free(reserve + large - 1)
		want(reserve/spareRoom-1000, reserve/spareRoom-1, true)
		if err := log.Flush(); err != nil {
			t.Fatal(err)
		}
		free(reserve + large - 1)
		want(large, reserve+large-kept, false)
		free(0)
		want(0, 0, true)
		free(1 << 40)
		want(host.Unbounded, host.Unbounded, false)
	})
}
