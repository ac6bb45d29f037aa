package watch

// History are the methods of the watched state that the hub needs. They may be called from any
// goroutine.
type History interface {
	// Compacted returns the lowest revision whose changes can be read, though without their
	// previous values; 0 if all can. It must not block, nor call the hub, whose lock is held.
	Compacted() uint64
	// Changes visits the events of one state from a position on, in order, each with its position,
	// until visit returns false. previous is set if the events need the previous values. The hub
	// keeps the events. If the position is below the first revision of the history, Changes visits
	// nothing and returns that revision as compacted; otherwise compacted is 0. An error ends the
	// hub.
	Changes(from Position, previous bool, visit func(*Event, Position) bool) (
		compacted uint64, err error)
}

// read returns the stretch from a position on, from the ring if possible, otherwise from the
// history. compacted is as in History.Changes.
func (h *Hub) read(from Position, previous bool) (st stretch, compacted uint64, err error) {
	st, head, ok := h.ring.read(from, previous)
	if ok {
		return st, 0, nil
	}
	b := stretchBuilder{limits: h.limits, from: from, upTo: head,
		stretch: stretch{first: from.Number, previous: previous}}
	if compacted, err := h.history.Changes(from, previous, b.add); err != nil || compacted > 0 {
		if st, ok := h.ring.compacted(from, compacted); ok && err == nil {
			return st, 0, nil
		}
		return stretch{}, compacted, err
	}
	if !b.ended {
		b.end(Position{Revision: head + 1})
	}
	return b.stretch, 0, nil
}

// stretchBuilder builds a stretch from the events as they are read.
type stretchBuilder struct {
	stretch
	limits        *Limits
	from          Position
	upTo          uint64
	events, bytes int
	// The events and bytes of the present revision.
	ownEvents, ownBytes int
	ended               bool
}

func (b *stretchBuilder) end(next Position) bool {
	b.next, b.ended = next, true
	b.piece = b.from.Number > 0 || next.Number > 0
	return false
}

// add adds an event, and returns false when the stretch is complete.
func (b *stretchBuilder) add(e *Event, at Position) bool {
	n := len(b.revisions)
	switch {
	case at.Revision > b.upTo:
		return b.end(Position{Revision: b.upTo + 1})
	case b.from.Number > 0 && at.Revision > b.from.Revision:
		return b.end(Position{Revision: b.from.Revision + 1}) // the last piece
	case n == 0 || b.revisions[n-1].Number != at.Revision:
		if b.events >= b.limits.StretchEvents || b.bytes >= b.limits.StretchBytes {
			return b.end(Position{Revision: at.Revision})
		}
		b.revisions = append(b.revisions, Revision{Number: at.Revision})
		b.ownEvents, b.ownBytes = 0, 0
		n++
	case b.TooMany():
		if n == 1 {
			return b.end(at) // the stretch is a piece of the revision
		}
		b.revisions = b.revisions[:n-1]
		return b.end(Position{Revision: at.Revision})
	}
	one := &b.revisions[n-1]
	one.Events = append(one.Events, *e)
	b.ownEvents++
	b.ownBytes += e.Size()
	b.events++
	b.bytes += e.Size()
	return true
}

// TooMany reports that the present revision is too large for one piece. Later pieces are smaller.
func (b *stretchBuilder) TooMany() bool {
	if b.from.Number > 0 {
		return b.ownEvents >= b.limits.StretchEvents || b.ownBytes >= b.limits.StretchBytes
	}
	return b.ownEvents >= b.limits.RecentEvents || b.ownBytes >= b.limits.RecentBytes
}
