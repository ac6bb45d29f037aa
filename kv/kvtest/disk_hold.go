package kvtest

import (
	"strings"
)

// HoldReads makes reads of tables of data wait, as a disk does that is about to fail, or lets them
// go on. A server cannot be closed while they wait.
func (d *Disk) HoldReads(hold bool) {
	if hold {
		gate := make(chan struct{})
		d.reads.CompareAndSwap(nil, &gate)
		return
	}
	if gate := d.reads.Swap(nil); gate != nil {
		close(*gate)
	}
}

// awaitRead waits if reads of a file are held.
func (d *Disk) awaitRead(name string) {
	if gate := d.reads.Load(); gate != nil && strings.HasSuffix(name, ".sst") {
		<-*gate
	}
}
