package engine

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/admission"
)

// slowFS takes a millisecond for every write.
type slowFS struct{ vfs.FS }

func (s slowFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.Create(name, category)
	return slowFile{f}, err
}

type slowFile struct{ vfs.File }

func (f slowFile) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return f.File.Write(p)
}

// TestFlushesPause: a flush that is not waited for leaves time to others, and one that is, or that
// is behind, does not.
func TestFlushesPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		flushed := make(chan struct{}, 10)
		s, err := OpenState(Options{FS: slowFS{vfs.NewMem()}, Dir: "/state",
			FlushEnd: func() { flushed <- struct{}{} }})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		random := rand.NewChaCha8([32]byte{})
		flush := func(how func() error) time.Duration {
			for i := range 64 {
				value := make([]byte, 32<<10)
				_, _ = random.Read(value) // it cannot fail
				if err := apply(s, version(fmt.Sprint(i), 1), value); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if err := how(); err != nil {
				t.Fatal(err)
			}
			<-flushed
			return time.Since(began)
		}
		awaited, leisurely := flush(s.Flush), flush(s.AsyncFlush)
		if leisurely < awaited*time.Duration(admission.Flush.Idle+1)/2 {
			t.Errorf("with pauses it took %s, without %s", leisurely, awaited)
		}
		s.g.flushesBehind.Store(true)
		if behind := flush(s.AsyncFlush); behind > awaited+10*time.Millisecond {
			t.Errorf("when behind it took %s", behind)
		}
	})
}

// TestWorkHurriesForItself: compactions do not hurry because of flushes, nor the other way round.
func TestWorkHurriesForItself(t *testing.T) {
	flush, compaction := &piece{category: flushCategory}, &piece{category: compactionCategory}
	var g diskHealth
	for _, test := range []struct {
		name              string
		flush, compaction bool
		set               func()
	}{
		{"in calm", false, false, func() {}},
		{"a flush is awaited", true, false, func() { g.awaited.Store(1) }},
		{"flushes are behind", true, false, func() { g.flushesBehind.Store(true) }},
		{"compactions are behind", false, true, func() { g.compactionsBehind.Store(true) }},
	} {
		g = diskHealth{}
		test.set()
		if flush.urgent(&g) != test.flush || compaction.urgent(&g) != test.compaction {
			t.Errorf("%s: a flush hurries: %v, a compaction: %v", test.name, flush.urgent(&g),
				compaction.urgent(&g))
		}
	}
}
