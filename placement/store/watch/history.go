package watch

// History is what the hub needs of the state whose changes are watched. Its methods may be called
// from any goroutine.
type History interface {
	// Compacted returns the lowest revision whose changes can still be read; 0: all can. The former
	// values of its changes cannot. It does not block, and calls nothing of the hub, whose lock is
	// held.
	Compacted() uint64
	// Changes visits the events of one state from a position on, in order, each with its position,
	// until visit returns false. previous is set if events need the former values of their keys.
	// The hub keeps the events. compacted is not 0 if the position lies below the revision at which
	// the history starts, and is that revision; then nothing was visited. After an error, the hub
	// ends with it.
	Changes(from Position, previous bool, visit func(*Event, Position) bool) (
		compacted uint64, err error)
}

// read returns the stretch of the history from a position on, of the ring if that has it. compacted
// is as that of History.Changes.
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

// stretchBuilder makes a stretch of the events as they are read.
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

// add takes an event, and says whether it wants more.
func (b *stretchBuilder) add(e *Event, at Position) bool {
	n := len(b.revisions)
	switch {
	case at.Revision > b.upTo:
		return b.end(Position{Revision: b.upTo + 1})
	case b.from.Number > 0 && at.Revision > b.from.Revision:
		return b.end(Position{Revision: b.from.Revision + 1}) // that was the last piece
	case n == 0 || b.revisions[n-1].Number != at.Revision:
		if b.events >= b.limits.StretchEvents || b.bytes >= b.limits.StretchBytes {
			return b.end(Position{Revision: at.Revision})
		}
		b.revisions = append(b.revisions, Revision{Number: at.Revision})
		b.ownEvents, b.ownBytes = 0, 0
		n++
	case b.TooMany():
		if n == 1 {
			return b.end(at) // a piece
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
