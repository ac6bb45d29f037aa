package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads records, checking each against the limits. It holds one line in memory.
type Reader struct {
	in     *bufio.Reader
	format Format
	limits Limits
	line   uint64
	long   []byte // a line longer than the buffer of in
	key    []byte // of the last record
	value  []byte
	record Record // the expiry of the last record
}

// NewReader reads in, in the given format.
func NewReader(in io.Reader, format Format, limits Limits) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 256<<10), format: format, limits: limits}
}

// Line returns the number of the last line that was read, from 1.
func (r *Reader) Line() uint64 { return r.line }

// Next returns the next record, io.EOF after the last, and a *LineError for a line that is not a
// record. The Reader owns key and value, and changes them with the next call.
func (r *Reader) Next() (Record, error) {
	line, err := r.readLine()
	if errors.Is(err, io.EOF) {
		return Record{}, io.EOF
	}
	r.line++
	if err == nil {
		err = r.parse(line)
	}
	if err != nil {
		return Record{}, &LineError{Line: r.line, Err: err}
	}
	r.record.Key, r.record.Value = r.key, r.value
	return r.record, nil
}

var errLineTooLong = errors.New("the line is longer than the longest record")

// readLine returns the line without its newline; the last one may lack it.
func (r *Reader) readLine() ([]byte, error) {
	chunk, err := r.in.ReadSlice('\n')
	if err == nil {
		return chunk[:len(chunk)-1], nil
	}
	r.long = r.long[:0]
	for errors.Is(err, bufio.ErrBufferFull) {
		r.long = append(r.long, chunk...)
		if len(r.long) > r.limits.longestLine() {
			return nil, errLineTooLong
		}
		chunk, err = r.in.ReadSlice('\n')
	}
	r.long = append(r.long, chunk...)
	switch {
	case err == nil:
		return r.long[:len(r.long)-1], nil
	case errors.Is(err, io.EOF) && len(r.long) > 0:
		return r.long, nil
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	default:
		return nil, fmt.Errorf("reading: %w", err)
	}
}

func (r *Reader) parse(line []byte) error {
	r.key, r.value, r.record = r.key[:0], r.value[:0], Record{}
	if len(line) == 0 {
		return errors.New("the line is empty")
	}
	var err error
	if r.format == JSONL {
		err = r.parseJSON(line)
	} else {
		err = r.parseTSV(line)
	}
	if err != nil {
		return err
	}
	switch {
	case len(r.key) == 0:
		return errors.New("the key is empty; a key has at least one byte")
	case r.limits.Key > 0 && len(r.key) > r.limits.Key:
		return fmt.Errorf("the key has %d bytes; the limit is %d", len(r.key), r.limits.Key)
	case r.limits.Value > 0 && len(r.value) > r.limits.Value:
		return fmt.Errorf("the value has %d bytes; the limit is %d", len(r.value), r.limits.Value)
	}
	return nil
}

func (r *Reader) parseTSV(line []byte) error {
	if line[len(line)-1] == '\r' {
		return errors.New(
			`the line ends with a carriage return; convert the file to Unix line ends, ` +
				`or write \r if the value ends so`)
	}
	key, value, found := bytes.Cut(line, []byte{'\t'})
	if !found {
		return errors.New("there is no tab between key and value")
	}
	value, expiry, expires := bytes.Cut(value, []byte{'\t'})
	if bytes.IndexByte(expiry, '\t') >= 0 {
		return errors.New(`there are more than two tabs; write \t for a tab inside a key or value`)
	}
	var err error
	if r.key, err = Unescape(r.key, key); err != nil {
		return fmt.Errorf("in the key: %w", err)
	}
	if r.value, err = Unescape(r.value, value); err != nil {
		return fmt.Errorf("in the value: %w", err)
	}
	if expires {
		if err := r.record.parseExpiry(string(expiry)); err != nil {
			return fmt.Errorf("behind the second tab: %w; write \\t for a tab inside a key or value", err)
		}
	}
	return nil
}
