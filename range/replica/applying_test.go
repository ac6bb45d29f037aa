package replica

import (
	"testing"
	"testing/synctest"
	"time"
)

// Time goes on in a test while one waits for the lock and the other one, who has it, for a disk.
func TestTimeGoesOnWhileApplyingIsLocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newApplyingLock()
		l.Lock()
		go func() {
			time.Sleep(time.Second) // virtual
			l.Unlock()
		}()
		began := time.Now()
		l.Lock()
		defer l.Unlock()
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it was locked after %v", waited)
		}
	})
}
