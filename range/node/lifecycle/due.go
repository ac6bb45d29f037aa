package lifecycle

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/task"
)

// dueList are the partitions that the Reconciler is to look at. Whatever makes or removes replicas
// adds to them. Its locks are its own, and leaves.
type dueList struct {
	// wake wakes the Reconciler.
	wake task.Signal
	mu   struct {
		sync.Mutex
		// due are the partitions to look at; all is set if all are.
		due map[keys.PartitionID]struct{}
		all bool
		// busy counts the partitions that are being worked on.
		busy int
	}
	// waiting are partitions whose replica cannot be created as long as another replica here has a
	// part of their span. It has a lock of its own: others apply splits.
	waiting waitingPartitions
}

func (d *dueList) init() {
	d.wake = task.NewSignal()
	d.mu.due = make(map[keys.PartitionID]struct{})
}

// add schedules a look at a partition in the next step.
func (d *dueList) add(id keys.PartitionID) {
	d.mu.Lock()
	d.mu.due[id] = struct{}{}
	d.mu.Unlock()
}

// lookAt schedules a look at a partition.
func (d *dueList) lookAt(id keys.PartitionID) {
	d.add(id)
	d.wake.Send()
}

// addAll schedules a look at all partitions.
func (d *dueList) addAll() {
	d.mu.Lock()
	d.mu.all = true
	d.mu.Unlock()
	d.wake.Send()
}

// addRested adds the replicas whose turn to be removed from the disk has come.
func (d *dueList) addRested(p *removalPace) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range p.rested(time.Now(), len(d.mu.due)) {
		d.mu.due[id] = struct{}{}
	}
}

// spansChanged looks again at the partitions that wait for a span.
func (d *dueList) spansChanged() {
	ids := d.waiting.take()
	if len(ids) == 0 {
		return
	}
	for id := range ids {
		d.add(id)
	}
	d.wake.Send()
}

// take returns the partitions to look at, which count as being worked on from now on, and whether
// all are to be looked at.
func (d *dueList) take() (due map[keys.PartitionID]struct{}, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	due, all = d.mu.due, d.mu.all
	d.mu.due, d.mu.all = make(map[keys.PartitionID]struct{}), false
	d.mu.busy = len(due)
	return due, all
}

// begin notes how many of them there is work for, and worked that some of it is done.
func (d *dueList) begin(busy int) {
	d.mu.Lock()
	d.mu.busy = busy
	d.mu.Unlock()
}

func (d *dueList) worked(n int) {
	d.mu.Lock()
	d.mu.busy -= n
	d.mu.Unlock()
}

// idle notes the end of the work, and reports whether there is more.
func (d *dueList) idle() (more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.busy = 0
	return len(d.mu.due) > 0
}

// pending returns how many partitions are to be looked at, or are being worked on.
func (d *dueList) pending() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.mu.due) + d.mu.busy
	if d.mu.all {
		n++
	}
	return n
}

// waitingPartitions are partitions whose replica here waits for a span to become free, or may be an
// orphan when it does.
type waitingPartitions struct {
	mu  sync.Mutex
	ids map[keys.PartitionID]struct{}
}

func (w *waitingPartitions) add(id keys.PartitionID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ids == nil {
		w.ids = make(map[keys.PartitionID]struct{})
	}
	w.ids[id] = struct{}{}
}

func (w *waitingPartitions) take() map[keys.PartitionID]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := w.ids
	w.ids = nil
	return ids
}
