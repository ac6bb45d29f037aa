package alarm

import (
	"os"
	"sync"
	"time"
)

// bell rings once at a time. One goroutine waits.
type bell interface {
	// set has it ring when d, more than 0, has passed, and not when it was set to before.
	set(d time.Duration)
	// wait returns nil when it has rung, perhaps more than once; and an error when it is closed.
	wait() error
	close()
}

// plainBell is the runtime's timer.
type plainBell struct {
	timer  *time.Timer
	once   sync.Once
	closed chan struct{}
}

func newPlainBell() *plainBell {
	b := &plainBell{timer: time.NewTimer(time.Hour), closed: make(chan struct{})}
	b.timer.Stop()
	return b
}

func (b *plainBell) set(d time.Duration) { b.timer.Reset(d) }

func (b *plainBell) wait() error {
	select {
	case <-b.timer.C:
		return nil
	case <-b.closed:
		return os.ErrClosed
	}
}

func (b *plainBell) close() {
	b.once.Do(func() {
		b.timer.Stop()
		close(b.closed)
	})
}
