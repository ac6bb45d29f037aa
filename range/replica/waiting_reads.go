package replica

// waitingReads are the reads that wait for an entry to be applied, or for a read index. Replica.mu
// guards it.
type waitingReads struct {
	// waiting counts them.
	waiting int
	// confirming: a read index is asked for. next are the reads that came after that, and need
	// another one.
	confirming bool
	next       []*read
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
