package replica

// waitingReads are the reads that wait for an entry to be applied, for a read index, or for a
// timestamp to be closed here. Replica.mu guards it.
type waitingReads struct {
	// waiting counts them.
	waiting int
	// confirming: a read index is asked for. next are the reads that came after that, and need
	// another one.
	confirming bool
	next       []*read
	// closed wait for timestamps to be closed, or for an index at which a leader has admitted them
	// (closed_read.go). announced is of reads that this replica has admitted as a leader
	// (admission.go).
	closed    []*read
	announced announcement
}

// confirm has a read wait for a read index. It returns true if that is to be asked for.
func (w *waitingReads) confirm(rd *read) (ask bool) {
	w.waiting++
	w.next = append(w.next, rd)
	ask = !w.confirming
	w.confirming = true
	return ask
}

// ask returns the reads for which a read index is to be asked for now, nil if there are none. Those
// that come while it is under way need another: it speaks for what was committed when it was asked
// for.
func (w *waitingReads) ask() []*read {
	reads := w.next
	w.next = nil
	w.confirming = len(reads) > 0
	return reads
}

// drain takes out those for which no read index is asked for yet.
func (w *waitingReads) drain() []*read {
	reads := w.next
	w.next = nil
	w.waiting -= len(reads)
	return reads
}
