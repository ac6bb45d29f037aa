// Package task has the waits of a node's goroutines.
package task

// Signal wakes one goroutine. Signals that come while it is awake count as one.
type Signal chan struct{}

// NewSignal makes a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Send wakes the goroutine that receives. It never blocks.
func (s Signal) Send() {
	select {
	case s <- struct{}{}:
	default:
	}
}
