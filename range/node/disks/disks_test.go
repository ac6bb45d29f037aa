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
	const reserve, large = 1 << 20, 5 << 19
	withDisks(t, reserve, func(t *testing.T, d *Disks, free func(uint64)) {
		log := d.node.Log
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

// A node that has taken all the entries of data that were under way still announces deletions, and
// one that has taken all the deletions still announces collections: otherwise the entries that came
// before would keep a full disk full.
func TestEntriesUnderWayLeaveRoomForDeletions(t *testing.T) {
	const reserve = 1 << 20
	withDisks(t, reserve, func(t *testing.T, d *Disks, free func(uint64)) {
		for bytes := uint64(reserve); bytes > reserve/reserveParts; bytes -= 1 << 10 {
			free(bytes)
			room := d.roomForEntries()
			if room.UnderWay >= 0 && room.Takes != group.DeletionShare {
				t.Fatalf("with %d of %d bytes free, %d bytes of data are taken; the announced share is %d",
					bytes, reserve, room.UnderWay, room.Takes)
			}
			if room.Bytes[group.DeletionShare] >= 0 && room.Takes == group.NoShare {
				t.Fatalf("with %d of %d bytes free, %d bytes of deletions are taken, and no collections",
					bytes, reserve, room.Bytes[group.DeletionShare])
			}
		}
	})
}

// withDisks runs a test in virtual time with the disks of a node whose reserve is given, and with a
// function that sets the free space of both databases.
func withDisks(t *testing.T, reserve uint64,
	test func(t *testing.T, d *Disks, free func(bytes uint64))) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
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
		test(t, d, free)
	})
}
