package kv

import "time"

// How a View reads that any replica may answer.
//
// Its first read finds the timestamp, as a read by itself does, and from there on it is a snapshot
// of the past: everything is read exactly at that timestamp, by replicas that have closed it, or by
// the leader. So nothing in it is uncertain, and it never runs again.

// viewOptions returns the option of such a View's first read; nil if there is none, or the View is
// linearizable.
func viewOptions(options []ViewOption) (first *FreshnessOption, linearizable bool, bad string) {
	if len(options) == 0 {
		return nil, false, ""
	}
	var q query
	for _, o := range options {
		o.view(&q)
	}
	if q.fresh.linearizable {
		return nil, true, q.check()
	}
	return &FreshnessOption{func(to *query) { to.fresh = q.fresh }}, false, q.check()
}

// exactOption is an option of any read.
type exactOption interface {
	GetOption
	CountOption
	ScanOption
}

// exactly returns the options with which a snapshot of the past reads; at the first read of a View,
// found takes the timestamp. ok is false for a snapshot of the present.
func (s *Snapshot) exactly(found *ReadInfo) (options []exactOption, ok bool) {
	switch {
	case s.first != nil:
		return []exactOption{*s.first, ReadAt(found)}, true
	case s.isPast && s.anyReplica:
		return []exactOption{At(s.past), Nearest()}, true
	case s.isPast:
		return []exactOption{At(s.past)}, true
	}
	return nil, false
}

// found takes the timestamp that the first read has found.
func (s *Snapshot) found(at Timestamp) {
	if s.first != nil && !at.IsZero() {
		s.past, s.isPast, s.first = at, true, nil
	}
}

// as are the options of one kind of read.
func as[O any](exact []exactOption, others ...O) (options []O) {
	for _, o := range exact {
		options = append(options, o.(O))
	}
	return append(options, others...)
}

// Age returns how old the snapshot's timestamp is, as in ReadInfo; negative if it has none yet, or
// if the time is not known.
func (s *Snapshot) Age() time.Duration { return s.client.conn.Age(s.Timestamp()) }
