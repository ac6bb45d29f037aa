package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// Virtual time goes on while one goroutine waits for its turn and another one, which has it,
// sleeps.
func TestTimeGoesOnWhileTurnsAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newChanMutex()
		x.lock()
		go func() {
			time.Sleep(time.Second) // virtual
			x.unlock()
		}()
		began := time.Now()
		x.lock()
		defer x.unlock()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it came after %v", waited)
		}
	})
}
