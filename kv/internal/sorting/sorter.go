package sorting

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Record is a key and its value, and how long that lives.
type Record struct {
	Key, Value []byte
	Lifetime   keys.Lifetime
}

// Sorter takes records in any order, and returns them in the order of their keys. New makes it. It
// is for one goroutine until the last record was added.
type Sorter struct {
	memory int
	dir    string

	slabs [][]byte
	// free are slabs that can be used again.
	free    [][]byte
	entries []entry
	held    int
	// ordered is set if the records in memory came in ascending order, each key once.
	ordered bool
	// inOrder is set if all records that were ever added did.
	inOrder bool
	last    []byte
	records uint64
	bytes   uint64

	runs runs
}

// entry is the position of a record.
type entry struct {
	// prefix is the first 8 bytes of the key, so that most comparisons need no look at it.
	prefix   uint64
	slab     uint32
	offset   uint32
	key      uint32
	value    uint32
	sequence uint32
	lifetime keys.Lifetime
}

const (
	entrySize = 40
	slabSize  = 4 << 20
	// minMemory is the least that a sorter works with: the largest record fits.
	minMemory = 16 << 20
)

// New returns an empty sorter that holds about memory bytes in memory, and the rest in a file in
// dir; an empty dir is the system's directory for temporary files. Close it.
func New(memory int, dir string) *Sorter {
	return &Sorter{memory: max(memory, minMemory), dir: dir, ordered: true, inOrder: true}
}

// Add adds a record. Its key and value are copied.
func (s *Sorter) Add(r Record) error {
	key, value := r.Key, r.Value
	size := len(key) + len(value)
	if s.Full(size) {
		if err := s.spill(); err != nil {
			return err
		}
	}
	n, at := s.place(size)
	s.slabs[n] = append(append(s.slabs[n], key...), value...)
	s.entries = append(s.entries, entry{prefix: prefixOf(key), slab: uint32(n), offset: uint32(at),
		key: uint32(len(key)), value: uint32(len(value)), sequence: uint32(len(s.entries)),
		lifetime: r.Lifetime})
	s.held += size + entrySize
	s.note(key)
	s.records++
	s.bytes += uint64(size)
	return nil
}

// place returns where the next size bytes go: a slab, and an offset in it.
func (s *Sorter) place(size int) (n, at int) {
	n = len(s.slabs) - 1
	if n < 0 || len(s.slabs[n])+size > cap(s.slabs[n]) {
		s.slabs = append(s.slabs, s.slab(size))
		n++
	}
	return n, len(s.slabs[n])
}

// slab is empty memory for at least size bytes.
func (s *Sorter) slab(size int) []byte {
	if n := len(s.free); n > 0 && size <= slabSize {
		slab := s.free[n-1]
		s.free = s.free[:n-1]
		return slab
	}
	return make([]byte, 0, max(slabSize, size))
}

// note sees whether the records come in order.
func (s *Sorter) note(key []byte) {
	if s.records > 0 && bytes.Compare(key, s.last) <= 0 {
		s.ordered, s.inOrder = false, false
	}
	s.last = append(s.last[:0], key...)
}

// Full reports that a record of a size would not fit into memory.
func (s *Sorter) Full(size int) bool { return s.held > 0 && s.held+size+entrySize > s.memory }

// InOrder reports that all records came in ascending order, each key once.
func (s *Sorter) InOrder() bool { return s.inOrder }

// Records is how many were added.
func (s *Sorter) Records() uint64 { return s.records }

// Bytes returns the total size of the keys and values that were added.
func (s *Sorter) Bytes() uint64 { return s.bytes }

// Spilled is how many bytes the file has.
func (s *Sorter) Spilled() uint64 { return uint64(s.runs.size) }

// Held returns how many bytes the memory and the file have, including records that were taken.
func (s *Sorter) Held() (memory, file uint64) { return uint64(s.held), uint64(s.runs.size) }

// empty forgets what is in memory, and keeps the memory.
func (s *Sorter) empty() {
	s.release(s.slabs)
	s.slabs, s.entries, s.held, s.ordered = s.slabs[:0], s.entries[:0], 0, true
}

// Close gives back the memory and the file.
func (s *Sorter) Close() error {
	s.slabs, s.free, s.entries = nil, nil, nil
	return s.runs.close()
}

// release keeps slabs for the next records.
func (s *Sorter) release(slabs [][]byte) {
	for _, slab := range slabs {
		if cap(slab) == slabSize {
			s.free = append(s.free, slab[:0])
		}
	}
}

func (s *Sorter) record(e *entry) Record {
	data := s.slabs[e.slab][e.offset:]
	return Record{Key: data[:e.key:e.key], Value: data[e.key : e.key+e.value : e.key+e.value],
		Lifetime: e.lifetime}
}

func (s *Sorter) keyOf(e *entry) []byte { return s.slabs[e.slab][e.offset : e.offset+e.key] }

// sort sorts what is in memory, and takes out all but the last of equal keys.
func (s *Sorter) sort() {
	if s.ordered {
		return
	}
	slices.SortFunc(s.entries, func(a, b entry) int {
		if a.prefix != b.prefix {
			return cmp.Compare(a.prefix, b.prefix)
		}
		if order := bytes.Compare(s.keyOf(&a), s.keyOf(&b)); order != 0 {
			return order
		}
		return cmp.Compare(b.sequence, a.sequence)
	})
	s.entries = slices.CompactFunc(s.entries, func(a, b entry) bool {
		return a.prefix == b.prefix && bytes.Equal(s.keyOf(&a), s.keyOf(&b))
	})
	for i := range s.entries {
		s.entries[i].sequence = uint32(i) // below that of the next record
	}
	s.ordered = true
	s.last = append(s.last[:0], s.keyOf(&s.entries[len(s.entries)-1])...)
}

// spill moves what is in memory to the file.
func (s *Sorter) spill() error {
	s.sort()
	err := s.runs.add(s.dir, func(yield func(Record) bool) {
		for i := range s.entries {
			if !yield(s.record(&s.entries[i])) {
				return
			}
		}
	})
	s.empty()
	return err
}

// InMemory reports that all records are in memory, so that they can be read in parallel.
func (s *Sorter) InMemory() bool { return s.runs.size == 0 }

// Sorted returns the records in the order of their keys, each key once. Nothing may be added any
// more. A record is valid until the next. If all records are in memory, it may be called again.
func (s *Sorter) Sorted() iter.Seq2[Record, error] { return s.Between(nil, nil) }

// Between returns the records with keys in [start, end); an empty end is no bound. If records are
// in the file, it reads everything. If all are in memory, and Sort was called, several calls may be
// read in parallel.
func (s *Sorter) Between(start, end []byte) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s.Sort()
		if !s.InMemory() {
			for r, err := range s.merged() {
				switch {
				case err == nil && bytes.Compare(r.Key, start) < 0:
					continue
				case err == nil && len(end) > 0 && bytes.Compare(r.Key, end) >= 0:
					return
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			return
		}
		first, _ := slices.BinarySearchFunc(s.entries, start, func(e entry, key []byte) int {
			return bytes.Compare(s.keyOf(&e), key)
		})
		for i := first; i < len(s.entries); i++ {
			r := s.record(&s.entries[i])
			if len(end) > 0 && bytes.Compare(r.Key, end) >= 0 || !yield(r, nil) {
				return
			}
		}
	}
}

// Sort sorts the records in memory. Sorted and Between do it, if it was not done before.
func (s *Sorter) Sort() { s.sort() }

// merged are the records of the runs, and those in memory, which came last.
func (s *Sorter) merged() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if len(s.entries) > 0 {
			if err := s.spill(); err != nil {
				yield(Record{}, err)
				return
			}
		}
		s.slabs, s.free, s.entries = nil, nil, nil // the runs need memory for buffers
		s.runs.merge(s.memory, yield)
	}
}

// prefixOf is the first 8 bytes of a key, as a number of the same order.
func prefixOf(key []byte) uint64 {
	if len(key) >= 8 {
		return binary.BigEndian.Uint64(key)
	}
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}
