package workloads

import (
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/kv"
)

// watermark is the highest version of one key that the acknowledgement of a write or the answer of
// a read has proved to be there. Operations that begin later must find that version or a newer one.
// The watermark checks one half of linearisability, at the cost of one timestamp.
type watermark struct {
	mu struct {
		sync.Mutex
		version kv.Timestamp
	}
}

// known returns the version that an operation which begins now must find at least.
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

// read checks the version that a read found. floor was known when the read began.
func (w *watermark) read(floor, version kv.Timestamp) error {
	if version.Less(floor) {
		return fmt.Errorf("stale read: it found version %v, and %v was known before it began",
			version, floor)
	}
	w.raise(version)
	return nil
}

// wrote checks the version of a write. floor was known when the write began.
func (w *watermark) wrote(floor, version kv.Timestamp) error {
	if !floor.Less(version) {
		return fmt.Errorf("the write has version %v, and %v was there before it began", version,
			floor)
	}
	w.raise(version)
	return nil
}
