package records

import "io"

// Writer writes records. It buffers nothing: give it a bufio.Writer.
type Writer struct {
	out    io.Writer
	format Format
	line   []byte
}

// NewWriter writes to out, in the given format.
func NewWriter(out io.Writer, format Format) *Writer {
	return &Writer{out: out, format: format}
}

// Write writes one record as one line.
func (w *Writer) Write(record Record) error {
	w.line = w.line[:0]
	if w.format == JSONL {
		w.line = AppendJSONObject(w.line, record, false)
	} else {
		w.line = AppendEscaped(w.line, record.Key)
		w.line = append(w.line, '\t')
		w.line = AppendEscaped(w.line, record.Value)
		if with, said := record.appendExpiry(append(w.line, '\t')); said {
			w.line = with
		}
	}
	w.line = append(w.line, '\n')
	_, err := w.out.Write(w.line)
	return err
}
