package disks

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// TestFlusherLeavesFlushesToTheState: bytes that the state has flushed by itself do not count.
func TestFlusherLeavesFlushesToTheState(t *testing.T) {
	const limit, value = 1 << 20, 32 << 10
	for name, test := range map[string]struct {
		memTable uint64
		due      bool
	}{"the state keeps all in memory": {64 << 20, true}, "the state flushes often": {256 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			flushed := make(chan struct{}, 1)
			state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "/state",
				MemTableBytes: test.memTable, FlushEnd: func() {
					select {
					case flushed <- struct{}{}:
					default:
					}
				}})
			if err != nil {
				t.Fatal(err)
			}
			defer state.Close()
			f := &Flusher{node: &hosted.Node{State: state}, limit: limit}
			for i := range 2 * limit / value {
				b := state.NewBatch()
				if err := b.Set(keys.LocalKey(keys.PartitionID(i+1), keys.SuffixApplied),
					make([]byte, value), nil); err != nil {
					t.Fatal(err)
				}
				if err := state.Commit(b); err != nil {
					t.Fatal(err)
				}
				f.bytes.Add(value)
			}
			for !test.due && state.UnflushedBytes() >= limit {
				<-flushed
			}
			if f.due() != test.due {
				t.Errorf("%d bytes of %d are not durable; due: %v", state.UnflushedBytes(), f.bytes.Load(),
					f.due())
			}
		})
	}
}
