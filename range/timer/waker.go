package timer

import (
	"os"
	"sync"
	"time"
)

// waker fires once at a time. One goroutine waits for it.
type waker interface {
	// set makes it fire when d, more than 0, has passed, in place of an earlier setting.
	set(d time.Duration)
	// wait returns nil when it has fired, perhaps more than once; and an error when it is closed.
	wait() error
	close()
}

// plainWaker is the runtime's timer.
type plainWaker struct {
	timer  *time.Timer
	once   sync.Once
	closed chan struct{}
}

func newPlainWaker() *plainWaker {
	b := &plainWaker{timer: time.NewTimer(time.Hour), closed: make(chan struct{})}
	b.timer.Stop()
	return b
}

func (b *plainWaker) set(d time.Duration) { b.timer.Reset(d) }

func (b *plainWaker) wait() error {
	select {
	case <-b.timer.C:
		return nil
	case <-b.closed:
		return os.ErrClosed
	}
}

func (b *plainWaker) close() {
	b.once.Do(func() {
		b.timer.Stop()
		close(b.closed)
	})
}
