package store

import "github.com/tidemarkdb/tidemark/placement/store/storepb"

// readStretch reads the part of the history from a position on, up to a revision, from the
// database, with what keys were before if that is wanted.
func (s *Store) readStretch(from position, upTo uint64, previous bool) (st stretch, err error) {
	err = s.read(func(r *reader) error {
		b := stretchBuilder{limits: s.hub.limits, from: from, upTo: upTo,
			stretch: stretch{first: from.number, previous: previous}}
		if err := r.changes(from, previous, b.add); err != nil {
			return err
		}
		if !b.ended {
			b.end(position{revision: upTo + 1})
		}
		st = b.stretch
		return nil
	})
	return st, err
}

// stretchBuilder makes a stretch of the events as they are read.
type stretchBuilder struct {
	stretch
	limits        *watchLimits
	from          position
	upTo          uint64
	events, bytes int
	// own is what the revision at hand has.
	ownEvents, ownBytes int
	ended               bool
}

func (b *stretchBuilder) end(next position) bool {
	b.next, b.ended = next, true
	b.piece = b.from.number > 0 || next.number > 0
	return false
}

// add takes an event, and says whether it wants more.
func (b *stretchBuilder) add(e *Event, at position) bool {
	n := len(b.revisions)
	switch {
	case at.revision > b.upTo:
		return b.end(position{revision: b.upTo + 1})
	case b.from.number > 0 && at.revision > b.from.revision:
		return b.end(position{revision: b.from.revision + 1}) // that was the last piece
	case n == 0 || b.revisions[n-1].revision != at.revision:
		if b.events >= b.limits.stretchEvents || b.bytes >= b.limits.stretchBytes {
			return b.end(position{revision: at.revision})
		}
		b.revisions = append(b.revisions, revisionEvents{revision: at.revision})
		b.ownEvents, b.ownBytes = 0, 0
		n++
	case b.tooMany():
		if n == 1 {
			return b.end(at) // a piece
		}
		b.revisions = b.revisions[:n-1]
		return b.end(position{revision: at.revision})
	}
	one := &b.revisions[n-1]
	one.events = append(one.events, *e)
	b.ownEvents++
	b.ownBytes += e.size()
	b.events++
	b.bytes += e.size()
	return true
}

// tooMany says that the revision at hand is not to be had at once. Later pieces of it are smaller.
func (b *stretchBuilder) tooMany() bool {
	if b.from.number > 0 {
		return b.ownEvents >= b.limits.stretchEvents || b.ownBytes >= b.limits.stretchBytes
	}
	return b.ownEvents >= b.limits.recentEvents || b.ownBytes >= b.limits.recentBytes
}

// changes visits the events from a position on, in order, each with its position, until visit says
// false.
func (r *reader) changes(from position, previous bool, visit func(*Event, position) bool) error {
	return r.events(from, func(kv *storepb.KeyValue, n uint32, versions *reader) (bool, error) {
		event := &Event{KV: kv}
		if previous {
			var err error
			if event.Previous, err = versions.at(kv.Key, kv.ModRevision-1); err != nil {
				return false, err
			}
		}
		return visit(event, position{kv.ModRevision, n}), nil
	})
}
