package sorting

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// runs are sorted pieces of one temporary file, in the order in which they were added. A run has
// each key once. A record is its lifetime, a varint, the lengths of its key and value, a uvarint
// each, and both.
type runs struct {
	file *os.File
	// named is set while the file has its name.
	named bool
	size  int64
	spans []fileSpan
}

// fileSpan is where a run lies in the file: [begin, end).
type fileSpan struct{ begin, end int64 }

const (
	writeBuffer = 1 << 20
	// leastBuffer and mostBuffer bound how much of each run is read at a time.
	leastBuffer = 16 << 10
	mostBuffer  = 1 << 20
	// maxLength guards against a file that something else has written to.
	maxLength = 64 << 20
)

// add writes a run.
func (r *runs) add(dir string, all func(yield func(Record) bool)) error {
	if r.file == nil {
		file, err := os.CreateTemp(dir, "tidemark-load-*")
		if err != nil {
			return fmt.Errorf("a temporary file for sorting: %w", err)
		}
		r.file, r.named = file, os.Remove(file.Name()) != nil
	}
	begin := r.size
	out := bufio.NewWriterSize(io.NewOffsetWriter(r.file, begin), writeBuffer)
	var lengths []byte
	var failed error
	for record := range all {
		lengths = binary.AppendVarint(lengths[:0], int64(record.Lifetime))
		lengths = binary.AppendUvarint(lengths, uint64(len(record.Key)))
		lengths = binary.AppendUvarint(lengths, uint64(len(record.Value)))
		for _, part := range [...][]byte{lengths, record.Key, record.Value} {
			n, err := out.Write(part)
			r.size += int64(n)
			if err != nil {
				failed = err
			}
		}
		if failed != nil {
			break
		}
	}
	if err := errors.Join(failed, out.Flush()); err != nil {
		return fmt.Errorf("sorting, in the temporary file %s: %w", r.file.Name(), err)
	}
	r.spans = append(r.spans, fileSpan{begin, r.size})
	return nil
}

func (r *runs) close() error {
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	if r.named {
		err = errors.Join(err, os.Remove(r.file.Name()))
	}
	r.file, r.size, r.spans = nil, 0, nil
	return err
}

// run is a run that is being read: from the file, or, if memory is set, from the memory of a
// sorter, in order.
type run struct {
	in     *bufio.Reader
	memory *Sorter
	order  int
	record Record
	buffer []byte
	// at is the position of the record, and after that of the next: an offset in the file, or an
	// index of memory.entries.
	at, after int64
}

// next reads the next record; io.EOF at the end.
func (r *run) next() error {
	r.at = r.after
	if s := r.memory; s != nil {
		if r.at == int64(len(s.entries)) {
			return io.EOF
		}
		r.record = s.record(&s.entries[r.at])
		r.after++
		return nil
	}
	lifetime, err := binary.ReadVarint(r.in)
	if err != nil {
		return err
	}
	key, err := binary.ReadUvarint(r.in)
	if err != nil {
		return noEOF(err)
	}
	value, err := binary.ReadUvarint(r.in)
	if err == nil && (key > maxLength || value > maxLength) {
		err = fmt.Errorf("a record of %d and %d bytes", key, value)
	}
	if err != nil {
		return noEOF(err)
	}
	if n := int(key + value); n > cap(r.buffer) {
		r.buffer = make([]byte, max(n, 2*cap(r.buffer)))
	}
	r.buffer = r.buffer[:key+value]
	if _, err := io.ReadFull(r.in, r.buffer); err != nil {
		return noEOF(err)
	}
	r.record = Record{Key: r.buffer[:key:key], Value: r.buffer[key:],
		Lifetime: keys.Lifetime(lifetime)}
	r.after += int64(varintSize(uint64(lifetime<<1)^uint64(lifetime>>63)) + varintSize(key) +
		varintSize(value) + len(r.buffer))
	return nil
}

// varintSize is how many bytes binary.AppendUvarint makes of a number.
func varintSize(n uint64) int { return (bits.Len64(n|1) + 6) / 7 }

func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// merging are the runs by their next keys; of equal keys the run that was added last comes first.
type merging []*run

func (m merging) Len() int { return len(m) }
func (m merging) Less(i, j int) bool {
	if order := bytes.Compare(m[i].record.Key, m[j].record.Key); order != 0 {
		return order < 0
	}
	return m[i].order > m[j].order
}
func (m merging) Swap(i, j int) { m[i], m[j] = m[j], m[i] }
func (m *merging) Push(x any)   { *m = append(*m, x.(*run)) }
func (m *merging) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}

// open begins to read all runs. memory bounds the buffers.
func (r *runs) open(memory int) (m merging, err error) {
	size := min(mostBuffer, max(leastBuffer, memory/max(1, len(r.spans))))
	for i, span := range r.spans {
		next := &run{order: i, at: span.begin, after: span.begin, in: bufio.NewReaderSize(
			io.NewSectionReader(r.file, span.begin, span.end-span.begin), size)}
		if m, err = m.with(next); err != nil {
			return nil, r.failed(err)
		}
	}
	return m, nil
}

// failed is an error of reading the file.
func (r *runs) failed(err error) error {
	if err == nil || r.file == nil {
		return err
	}
	return fmt.Errorf("sorting, in the temporary file %s: %w", r.file.Name(), err)
}

// with adds a run, unless that is empty. The runs are no heap afterwards.
func (m merging) with(next *run) (merging, error) {
	switch err := next.next(); {
	case err == nil:
		return append(m, next), nil
	case !ended(err):
		return nil, err
	}
	return m, nil
}

// ended says that an error of next is the end of the run.
func ended(err error) bool {
	return errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
}

// each yields the records with keys below a key, in order, each key once; a nil key is above all.
// The runs stand at their next records afterwards. more is false if yield returned false.
func (m *merging) each(below []byte, yield func(Record) bool) (more bool, err error) {
	heap.Init(m)
	var last []byte
	for first := true; len(*m) > 0; {
		top := (*m)[0]
		if below != nil && bytes.Compare(top.record.Key, below) >= 0 {
			return true, nil
		}
		if first || !bytes.Equal(top.record.Key, last) {
			first = false
			last = append(last[:0], top.record.Key...)
			if !yield(top.record) {
				return false, nil
			}
		}
		switch err := top.next(); {
		case err == nil:
			heap.Fix(m, 0)
		case ended(err):
			heap.Pop(m)
		default:
			return false, err
		}
	}
	return true, nil
}

// merge returns the records of all runs in order. memory bounds the buffers.
func (r *runs) merge(memory int, yield func(Record, error) bool) {
	m, err := r.open(memory)
	if err == nil {
		_, err = m.each(nil, func(record Record) bool { return yield(record, nil) })
		err = r.failed(err)
	}
	if err != nil {
		yield(Record{}, err)
	}
}
