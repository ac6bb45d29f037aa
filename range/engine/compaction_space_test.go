package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A removal on a disk with little room gives the room back, though tables stay that have a little
// of something else beside what was removed, and compactions of them would not begin otherwise.
func TestRemovalWithLittleRoom(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		const minFree, rows = 1 << 20, 10
		row := func(prefix string, i int) string { return fmt.Sprintf("%s.%02d", prefix, i) }
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: minFree / 8, TotalBytes: 10 * minFree})
		s := openTestState(t, Options{FS: fs, MinFreeBytes: minFree})
		value := make([]byte, 10<<10)
		random := rand.NewChaCha8([32]byte{})
		for i := range rows {
			_, _ = random.Read(value)
			// What stays of the tables overlaps, on either side of what is removed.
			for _, prefix := range []string{"a1", "a2", "c1", "c2"} {
				if err := apply(s, version(row(prefix, i), 1), value[:10]); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(apply(s, version(row("b", i), 1), value), s.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		passTime(2 * time.Minute)
		before := s.UsedBytes()
		if n := s.Metrics().Compact.Count; n > 0 {
			t.Fatalf("%d compactions began without room", n)
		}
		span := keys.DataSpan(keys.PrefixSpan([]byte("b")))
		if err := s.ExciseAll(context.Background(), nil, []keys.Span{span}); err != nil {
			t.Fatal(err)
		}
		passTime(time.Minute)
		if after := s.UsedBytes(); after > before/2 {
			t.Errorf("%d of %d bytes are used after the removal", after, before)
		}
		for i := range rows {
			for _, prefix := range []string{"a1", "a2", "c1", "c2"} {
				if got := get(t, s, version(row(prefix, i), 1)); len(got) != 10 {
					t.Errorf("%s: %d bytes", row(prefix, i), len(got))
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A table that can be had again takes nothing of the reserve.
func TestSpareTableLeavesTheReserve(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		const minFree = 1 << 20
		usage := func(free uint64) {
			mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: free, TotalBytes: 10 * minFree})
		}
		usage(2 * minFree)
		s := openTestState(t, Options{FS: fs, MinFreeBytes: minFree})
		random := rand.NewChaCha8([32]byte{})
		write := func() error {
			w, err := s.NewSpareTableWriter()
			if err != nil {
				return err
			}
			defer w.Abort()
			value := make([]byte, 32<<10)
			for i := range 20 {
				_, _ = random.Read(value)
				if err := w.Set(version(fmt.Sprintf("%02d", i), 1), value); err != nil {
					return err
				}
			}
			path, err := w.Finish()
			if err == nil {
				s.DiscardTables([]string{path})
			}
			return err
		}
		if err := write(); err != nil {
			t.Errorf("with room: %v", err)
		}
		usage(minFree - 1)
		if err := write(); !errors.Is(err, ErrNoRoom) {
			t.Errorf("with nothing but the reserve: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
