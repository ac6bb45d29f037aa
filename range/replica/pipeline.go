package replica

import (
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
)

// pipeline is the way of writes from the queue to the log: the queue, the evaluation, and what is
// proposed and not applied. Replica.mu guards it.
type pipeline struct {
	queue proposal.Queue[write]
	// evaluating: a goroutine is in evaluateQueue.
	evaluating bool
	// building is the entry that the evaluation at work fills.
	building *pendingEntry
	// open is the evaluation that fills it, if it stays open and no goroutine is at work.
	open *evaluation
	// inFlight is what is proposed and not applied, oldest first.
	inFlight []*pendingEntry
	// sequence is the number of the latest proposal.
	sequence uint64
	// splitStats count a part that is to split off; nil: no part is.
	splitStats *reshape.SplitStats
	// holding is the entry by which the partition splits, is frozen, or merges, from its evaluation
	// until its fate is known: nothing is evaluated meanwhile, and reads wait for it. While the
	// partition is frozen a standing one has that effect.
	holding *pendingEntry
}

// find is the entry of a sequence that is in flight, or being filled; nil if there is none.
func (p *pipeline) find(sequence uint64) *pendingEntry {
	if sequence == 0 {
		return nil
	}
	if b := p.building; b != nil && b.sequence == sequence {
		return b
	}
	return p.proposed(sequence)
}

// proposed is the entry of a sequence that is in flight; nil if there is none.
func (p *pipeline) proposed(sequence uint64) *pendingEntry {
	for _, e := range p.inFlight {
		if e.sequence == sequence {
			return e
		}
	}
	return nil
}

// base is the sequence that the next proposal of a term builds on.
func (p *pipeline) base(term uint64, applied *storage.Record) uint64 {
	if n := len(p.inFlight); n > 0 {
		return p.inFlight[n-1].sequence
	}
	if applied.CommandTerm == term {
		return applied.Sequence
	}
	return 0
}

// removeFirst takes out the oldest entry in flight.
func (p *pipeline) removeFirst() {
	n := copy(p.inFlight, p.inFlight[1:])
	p.inFlight[n] = nil
	p.inFlight = p.inFlight[:n]
}
