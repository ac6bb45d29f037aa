package replica

// Locked says that transactions have keys or spans of the partition locked. It is cheap.
func (r *Replica) Locked() bool { return r.mu.locks.Held() != 0 }

// SweepLocks asks about transactions that have had locks here for a while, and has the locks of
// those that are over released. It is to be called about every second where there are locks; on a
// replica that does not lead it does nothing. now is the physical clock, in nanoseconds since the
// epoch. It does not wait for anything.
func (r *Replica) SweepLocks(now int64) {
	if !r.enter() {
		return
	}
	defer r.exit()
	var work lockWork
	r.mu.Lock()
	if r.mu.leadership.Serving() {
		r.mu.locks.Sweep(now, r.node.LockNow(), &work.Work)
	}
	r.mu.Unlock()
	work.run(r)
}

// Intents is how many keys are locked by transactions that write them, by what this replica has
// applied: what is on its way does not count.
func (r *Replica) Intents() int {
	if !r.Locked() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.locks.Intents()
}
