package main

import (
	"runtime"
	"sync"
	"time"
)

// burnPeriod is how often a burner alternates between computing and resting.
const burnPeriod = 20 * time.Millisecond

// burn has goroutines compute, as many as there are processors, so that together they use so many
// of them. They share nothing with any of them. The function that it returns ends them.
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
