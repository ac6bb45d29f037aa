package sorting

import (
	"bytes"
	"errors"
	"sort"
)

// A sorter as a queue: the lowest records are taken out again and again, while others are added.
// Taken records are not removed: the runs of the file, and the memory, begin after them then. Their
// room is given back when it is half of the file, or of the memory, by copying the rest. So each
// record is copied about once, however often some are taken, and the old and the new file together
// are at most twice as large as the old one.

// Take yields the records with keys below a key, in order, each key once, and forgets them. More
// may be added afterwards, with any keys. A record is valid until the next. more is false if yield
// returned false; then, and after an error, the sorter can only be closed.
func (s *Sorter) Take(below []byte, yield func(Record) bool) (more bool, err error) {
	m, err := s.read()
	if err != nil {
		return false, err
	}
	if more, err = m.each(below, yield); !more || err != nil {
		return false, s.runs.failed(err)
	}
	first := len(s.entries)
	for i := range s.runs.spans {
		s.runs.spans[i].begin = s.runs.spans[i].end
	}
	for _, left := range m {
		if left.memory != nil {
			first = int(left.at)
		} else {
			s.runs.spans[left.order].begin = left.at
		}
	}
	s.keep(s.entries[first:], 2)
	if live := s.runs.live(); live > 0 && 2*live > s.runs.size {
		return true, nil
	}
	return true, s.rewrite(nil)
}

// Each yields all records in order, each key once, until yield returns false. They stay. A record
// is valid until the next.
func (s *Sorter) Each(yield func(Record) bool) error {
	m, err := s.read()
	if err == nil {
		_, err = m.each(nil, yield)
	}
	return s.runs.failed(err)
}

// Truncate forgets the records with keys at or above a key, and gives back their room.
func (s *Sorter) Truncate(below []byte) error {
	s.sort()
	s.keep(s.entries[:sort.Search(len(s.entries), func(i int) bool {
		return bytes.Compare(s.keyOf(&s.entries[i]), below) >= 0
	})], 2)
	return s.rewrite(below)
}

// Compact gives back the room of taken records, if that is at least an eighth of the memory or of
// the file. It returns whether it did.
func (s *Sorter) Compact() (bool, error) {
	s.sort()
	held := s.held
	s.keep(s.entries, 8)
	if s.held < held {
		return true, nil
	}
	if taken := s.runs.size - s.runs.live(); taken == 0 || 8*taken < s.runs.size {
		return false, nil
	}
	return true, s.rewrite(nil)
}

// read begins to read the file and the memory. It is invalid when something is added.
func (s *Sorter) read() (merging, error) {
	s.sort()
	m, err := s.runs.open(s.memory / 8)
	if err != nil {
		return nil, err
	}
	return m.with(&run{order: len(s.runs.spans), memory: s})
}

// keep makes entries, which are a part of all entries and in order, the content of the memory. They
// are copied if that gives back at least one of parts parts of the memory.
func (s *Sorter) keep(entries []entry, parts int) {
	if len(entries) == 0 {
		s.empty()
		return
	}
	live := 0
	for i := range entries {
		e := &entries[i]
		e.sequence = uint32(i) // as sort does
		live += int(e.key+e.value) + entrySize
	}
	s.entries = entries
	if parts*(s.held-live) < s.held {
		return
	}
	slabs := s.slabs
	s.slabs, s.held = nil, live
	for i := range entries {
		e := &entries[i]
		data := slabs[e.slab][e.offset : e.offset+e.key+e.value]
		n, at := s.place(len(data))
		s.slabs[n] = append(s.slabs[n], data...)
		e.slab, e.offset = uint32(n), uint32(at)
	}
	s.release(slabs)
}

// live returns how many bytes of the file belong to records that were not taken.
func (r *runs) live() (bytes int64) {
	for _, span := range r.spans {
		bytes += span.end - span.begin
	}
	return bytes
}

// rewrite copies the records of the file that are below a key and not taken into another file, as
// one run.
func (s *Sorter) rewrite(below []byte) error {
	if s.runs.live() == 0 {
		return s.runs.close()
	}
	m, err := s.runs.open(s.memory / 8)
	if err != nil {
		return err
	}
	var next runs
	var failed error
	err = next.add(s.dir, func(yield func(Record) bool) { _, failed = m.each(below, yield) })
	if failed != nil || err != nil {
		return errors.Join(s.runs.failed(failed), err, next.close())
	}
	old := s.runs
	if s.runs = next; next.size == 0 {
		err = s.runs.close()
	}
	return errors.Join(err, old.close())
}
