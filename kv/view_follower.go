package kv

import "time"

// This file has the reads of a View that any replica may answer.
//
// The first read chooses the timestamp, as a single read does. From then on the View is a snapshot
// of the past: all reads are exactly at that timestamp, by replicas that have closed it, or by the
// leader. So nothing is uncertain, and the function never runs again.

// viewOptions returns the option of the first read of such a View. It returns nil if there is none,
// or if the View is linearizable.
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

// exactOption is an option of any kind of read.
type exactOption interface {
	GetOption
	CountOption
	ScanOption
}

// exactly returns the options with which a snapshot of the past reads. At the first read of a View,
// found receives the timestamp. ok is false for a snapshot of the present.
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

// found stores the timestamp of the first read.
func (s *Snapshot) found(at Timestamp) {
	if s.first != nil && !at.IsZero() {
		s.past, s.isPast, s.first = at, true, nil
	}
}

// as converts the options to the type for one kind of read.
func as[O any](exact []exactOption, others ...O) (options []O) {
	for _, o := range exact {
		options = append(options, o.(O))
	}
	return append(options, others...)
}

// Age returns the age of the snapshot's timestamp, as in ReadInfo. It is negative if the snapshot
// has no timestamp yet, or if the time is not known.
func (s *Snapshot) Age() time.Duration { return s.client.conn.Age(s.Timestamp()) }
