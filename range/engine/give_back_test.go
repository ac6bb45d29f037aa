package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// What was deleted key by key gives its room back, on a disk that has little, without other writes;
// and what stays is still there.
func TestGiveBack(t *testing.T) {
	for _, stays := range []int{0, 3} { // of ten keys
		t.Run(fmt.Sprintf("%d of 10 stay", stays), func(t *testing.T) {
			inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
				const minFree, rows = 1 << 20, 2000
				mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: minFree / 8, TotalBytes: 100 * minFree})
				s := openTestState(t, Options{FS: fs, MinFreeBytes: minFree})
				value := make([]byte, 10<<10)
				random := rand.NewChaCha8([32]byte{})
				row := func(i int) string { return fmt.Sprintf("row%06d", i) }
				for i := range rows {
					_, _ = random.Read(value)
					if err := apply(s, version(row(i), 1), value); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(apply(s, version("other", 1), value), s.Flush()); err != nil {
					t.Fatal(err)
				}
				before := s.UsedBytes()
				b := s.NewBatch()
				for i := range rows {
					if i%10 >= stays {
						if err := b.Delete(version(row(i), 1), nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := errors.Join(s.Commit(b), b.Close()); err != nil {
					t.Fatal(err)
				}
				span := keys.DataSpan(keys.PrefixSpan([]byte("row")))
				if err := s.GiveBack(context.Background(), span); err != nil {
					t.Fatal(err)
				}
				passTime(retryDelay) // files are removed in the background
				want := before*uint64(stays)/10 + before/10
				if after := s.UsedBytes(); after > want {
					t.Errorf("%d of %d bytes are used, at most %d should be", after, before, want)
				}
				for i := range rows {
					if got := get(t, s, version(row(i), 1)); (len(got) > 0) != (i%10 < stays) {
						t.Fatalf("row %d has %d bytes", i, len(got))
					}
				}
				if len(get(t, s, version("other", 1))) == 0 {
					t.Error("what lies beside the span is gone")
				}
				if s.ScratchBytes() != 0 {
					t.Errorf("compactions that are over have %d bytes", s.ScratchBytes())
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// What compactions write counts as theirs until they end, also if they are given up.
func TestScratch(t *testing.T) {
	fs := healthFS{vfs.NewMem(), newDiskHealth(Options{FS: vfs.NewMem()}, kindState)}
	write := func(name string, category vfs.DiskWriteCategory) {
		t.Helper()
		f, err := fs.Create(name, category)
		if err == nil {
			_, err = f.Write(make([]byte, 100))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	want := func(bytes int64) {
		t.Helper()
		if got := fs.g.scratch.total.Load(); got != bytes {
			t.Errorf("compactions have %d bytes, want %d", got, bytes)
		}
	}
	write("000001.sst", flushCategory)
	want(0)
	for _, name := range []string{"000002.sst", "000003.sst", "000004.sst", "000005.sst"} {
		write(name, compactionCategory)
	}
	want(400)
	if err := fs.Remove("000002.sst"); err != nil {
		t.Fatal(err)
	}
	want(300)
	s := &store{g: fs.g}
	s.compacted(pebble.CompactionInfo{
		Output: pebble.LevelInfo{Tables: []pebble.TableInfo{{FileNum: 3}}}})
	want(200)
	s.compacted(pebble.CompactionInfo{Err: ErrNoRoom,
		Output: pebble.LevelInfo{Tables: []pebble.TableInfo{{FileNum: 4}}}})
	want(200)
	fs.g.scratch.idle()
	want(0)
}

// It ends with its context while it waits for room, and with the engine.
func TestGiveBackEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, fs *faultFS, mem *vfs.MemFS) {
		const minFree = 1 << 20
		mem.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 0, TotalBytes: 100 * minFree})
		s := openTestState(t, Options{FS: fs, MinFreeBytes: minFree})
		if err := errors.Join(apply(s, version("row", 1), []byte("x")), s.Flush(),
			apply(s, version("row", 2), []byte("x"))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		span := keys.DataSpan(keys.PrefixSpan([]byte("row")))
		if err := s.GiveBack(ctx, span); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without room: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.GiveBack(context.Background(), span); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
	})
}
