package kvtest

// Pause does to a server what SIGSTOP does to a process, as nearly as one process of many inside a
// single one can have it: from now on nothing reaches it and nothing of it reaches another server
// (connections stay, as the kernel keeps them), no sync of its logs ends, and both its clocks stand
// still, so that its groups are not ticked and a leader goes on believing in itself. Resume lets
// the clocks show the true time again, and everything that waited arrives at once.
//
// What is different from SIGSTOP: goroutines do run. Timeouts of requests and of connections, which
// are measured by timers, pass during the pause and not after it; and what was under way between
// two instructions is not held there. bench/proof/faults stops real processes.
//
// Nothing happens to a server that is down. Stop and Kill end a pause.
func (c *Cluster) Pause(server int) {
	s := c.servers[server]
	if s.running() == nil || s.paused.Swap(true) {
		return
	}
	s.disk.setPaused(true)
	s.clock.pause(true)
	s.follow()
}

// Resume ends Pause.
func (c *Cluster) Resume(server int) {
	s := c.servers[server]
	if !s.paused.Load() {
		return
	}
	// The clocks first: what finds the server not paused finds them going.
	s.clock.pause(false)
	s.paused.Store(false)
	s.disk.setPaused(false)
	s.follow()
}

// Paused says whether a server stands still. Its clocks do not go then, and what it believes by
// them is not the truth.
func (c *Cluster) Paused(server int) bool { return c.servers[server].paused.Load() }
