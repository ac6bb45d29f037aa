package target

import (
	"bytes"
	"errors"
	"io"
	"sync"
)

// body is the content of a request. After a request has failed, the goroutine that writes to the
// connection may go on reading the body for a while. stop prevents this goroutine from reading the
// caller's bytes, which the caller may change after the call.
type body struct {
	mu struct {
		sync.Mutex
		reader  *bytes.Reader
		stopped bool
	}
}

var _ io.ReadSeeker = (*body)(nil)

var errStopped = errors.New("the request is over")

func newBody(data []byte) *body {
	b := &body{}
	b.mu.reader = bytes.NewReader(data)
	return b
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.stopped {
		return 0, errStopped
	}
	return b.mu.reader.Read(p)
}

// Seek implements io.Seeker.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.stopped {
		return 0, errStopped
	}
	return b.mu.reader.Seek(offset, whence)
}

// stop makes all further reads fail. It waits for a read that is under way.
func (b *body) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.stopped, b.mu.reader = true, nil
}
