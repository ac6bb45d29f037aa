package machine

import (
	"errors"
	"sync/atomic"
)

// life counts the users of a replica, so that Close can wait for them.
type life struct {
	// active counts the calls of Submit, and the reads that are not answered.
	active atomic.Int64
	closed atomic.Bool
	// drained is set when Close has begun. The channel is closed when no user is left.
	drained atomic.Pointer[chan struct{}]
}

// Enter announces a user, until exit. It returns false if the replica is closed.
func (l *life) Enter() bool {
	l.active.Add(1)
	if l.closed.Load() {
		l.Exit()
		return false
	}
	return true
}

func (l *life) Exit() {
	if l.active.Add(-1) == 0 && l.closed.Load() {
		if drained := l.drained.Load(); drained != nil {
			select {
			case *drained <- struct{}{}:
			default:
			}
		}
	}
}

// BeginClose closes the replica to new users. It returns false if it was closed before.
func (l *life) BeginClose() bool {
	drained := make(chan struct{}, 1)
	if !l.drained.CompareAndSwap(nil, &drained) {
		return false
	}
	l.closed.Store(true)
	return true
}

// Drain waits until a replica that is being closed has no user.
func (l *life) Drain() {
	for drained := *l.drained.Load(); l.active.Load() > 0; {
		<-drained
	}
}

// Hold announces one more user of a replica that has one, until exit.
func (l *life) Hold() { l.active.Add(1) }

// IsClosed reports that the replica is closed to new users.
func (l *life) IsClosed() bool { return l.closed.Load() }

// ErrClosed is returned after the replica was closed.
var ErrClosed = errors.New("the replica is closed")
