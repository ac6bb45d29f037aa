package main

import (
	"runtime"
	"sync"
	"time"
)

// burnPeriod is the period in which a burner computes once and rests once.
const burnPeriod = 20 * time.Millisecond

// burn starts goroutines that compute, one for each processor, so that together they use the given
// number of processors. They share no data with anything. The returned function ends them.
func burn(processors float64) (stop func()) {
	done := make(chan struct{})
	var burners sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	each := time.Duration(min(1, processors/float64(n)) * float64(burnPeriod))
	for range n {
		burners.Go(func() {
			ticker := time.NewTicker(burnPeriod)
			defer ticker.Stop()
			for {
				// it is meant to be busy
				for began := time.Now(); time.Since(began) < each; { //nolint:revive
				}
				select {
				case <-ticker.C:
				case <-done:
					return
				}
			}
		})
	}
	return func() {
		close(done)
		burners.Wait()
	}
}
