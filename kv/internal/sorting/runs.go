package sorting

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// runs are sorted pieces of one temporary file, in the order in which they were added. In each a
// key is there once. A record is its lifetime, a varint, the lengths of its key and value, a uvarint
// each, and both.
type runs struct {
	file *os.File
	// named: the file has its name still.
	named bool
	size  int64
	ends  []int64
}

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
	out := bufio.NewWriterSize(io.NewOffsetWriter(r.file, r.size), writeBuffer)
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
	r.ends = append(r.ends, r.size)
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
	r.file, r.size, r.ends = nil, 0, nil
	return err
}

// run is one that is being read.
type run struct {
	in     *bufio.Reader
	order  int
	record Record
	buffer []byte
}

// next reads the next record; io.EOF at the end.
func (r *run) next() error {
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
	return nil
}

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

// merge returns the records of all runs in order. memory bounds the buffers.
func (r *runs) merge(memory int, yield func(Record, error) bool) {
	fail := func(err error) {
		yield(Record{}, fmt.Errorf("sorting, in the temporary file %s: %w", r.file.Name(), err))
	}
	var m merging
	begin := int64(0)
	size := min(mostBuffer, max(leastBuffer, memory/max(1, len(r.ends))))
	for i, end := range r.ends {
		next := &run{order: i,
			in: bufio.NewReaderSize(io.NewSectionReader(r.file, begin, end-begin), size)}
		begin = end
		switch err := next.next(); {
		case err == nil:
			m = append(m, next)
		case !errors.Is(err, io.EOF):
			fail(err)
			return
		}
	}
	heap.Init(&m)
	var last []byte
	for first := true; len(m) > 0; {
		top := m[0]
		if first || !bytes.Equal(top.record.Key, last) {
			first = false
			last = append(last[:0], top.record.Key...)
			if !yield(top.record, nil) {
				return
			}
		}
		switch err := top.next(); {
		case err == nil:
			heap.Fix(&m, 0)
		case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
			heap.Pop(&m)
		default:
			fail(err)
			return
		}
	}
}
