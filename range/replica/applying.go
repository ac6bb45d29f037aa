package replica

// applyingLock is a lock that is held while the disk is waited for: when a snapshot is installed,
// and when a state that is written too fast makes its writers wait. It is a channel because the
// disks of tests take virtual time, which does not go on as long as anybody waits for a mutex.
type applyingLock chan struct{} // capacity 1

func newApplyingLock() applyingLock { return make(applyingLock, 1) }

// Lock implements sync.Locker.
func (l applyingLock) Lock() { l <- struct{}{} }

// Unlock implements sync.Locker.
func (l applyingLock) Unlock() { <-l }
