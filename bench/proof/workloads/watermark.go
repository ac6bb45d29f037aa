package workloads

import (
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/kv"
)

// watermark is the highest version of one key that a write's acknowledgement or a read's answer has
// proved to be there. What begins afterwards must find it or a newer one. It is half of
// linearisability, and costs one timestamp.
type watermark struct {
	mu struct {
		sync.Mutex
		version kv.Timestamp
	}
}

// known is what a call that begins now may rely on.
func (w *watermark) known() kv.Timestamp {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.version
}

func (w *watermark) raise(version kv.Timestamp) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.version.Less(version) {
		w.mu.version = version
	}
}

// read checks a read that began when floor was known and found this version.
func (w *watermark) read(floor, version kv.Timestamp) error {
	if version.Less(floor) {
		return fmt.Errorf("stale read: it found version %v, and %v was known before it began",
			version, floor)
	}
	w.raise(version)
	return nil
}

// wrote checks the version of a write that began when floor was known.
func (w *watermark) wrote(floor, version kv.Timestamp) error {
	if !floor.Less(version) {
		return fmt.Errorf("the write has version %v, and %v was there before it began", version,
			floor)
	}
	w.raise(version)
	return nil
}
