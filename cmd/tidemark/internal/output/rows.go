package output

import (
	"bufio"
	"io"
	"math"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Rows prints pairs of key and value as they come.
type Rows struct {
	out      *bufio.Writer
	format   Format
	keysOnly bool
	line     []byte

	// A table's first page, held back until the width of the key column is known; nil afterwards.
	page     []pageRow
	pageSize int
	width    int
	started  bool
	screen   Screen
	// cut: a row was shortened. headed: the header of tsv was printed.
	cut, headed bool
}

type pageRow struct{ key, value string }

// A table aligns its first page (this many rows or bytes) and keeps that width. Longer keys that
// come later exceed the width.
const (
	pageRows  = 512
	pageBytes = 256 << 10
)

// NewRows begins a stream of rows. Call Flush at the end, even after an error, so that the rows
// before the error are printed.
func NewRows(out io.Writer, format Format, keysOnly bool) *Rows {
	return &Rows{out: bufio.NewWriterSize(out, 64<<10), format: format, keysOnly: keysOnly,
		page: make([]pageRow, 0, pageRows)}
}

// On sets the screen that shows the rows.
func (r *Rows) On(screen Screen) *Rows {
	r.screen = screen
	return r
}

// Write prints one row. It does not keep key and value. Only JSON shows the expiry. A zero expiry
// means that the value does not expire.
func (r *Rows) Write(key, value []byte, expires time.Time) error {
	r.line = r.line[:0]
	switch r.format {
	case JSON:
		r.line = records.AppendJSONObject(r.line, records.Record{Key: key, Value: value,
			Expires: expires},
			r.keysOnly)
	case TSV:
		r.head()
		r.line = records.AppendEscaped(r.line, key)
		if !r.keysOnly {
			r.line = append(r.line, '\t')
			r.line = records.AppendEscaped(r.line, value)
		}
	case Raw:
		r.line = append(r.line, key...)
		if !r.keysOnly {
			r.line = append(r.line, '\t')
			r.line = append(r.line, value...)
		}
	default:
		return r.writeTable(key, value)
	}
	r.line = append(r.line, '\n')
	_, err := r.out.Write(r.line)
	return err
}

// head appends the header of tsv once, if it is requested.
func (r *Rows) head() {
	if r.headed || !r.screen.Headers {
		return
	}
	r.headed = true
	r.line = append(r.line, "key"...)
	if !r.keysOnly {
		r.line = append(r.line, "\tvalue"...)
	}
	r.line = append(r.line, '\n')
}

func (r *Rows) writeTable(key, value []byte) error {
	row := pageRow{key: records.Escape(key)}
	if !r.keysOnly {
		row.value = records.Escape(value)
	}
	if r.started {
		return r.printRow(row)
	}
	r.page = append(r.page, row)
	r.pageSize += len(row.key) + len(row.value)
	if len(r.page) == pageRows || r.pageSize >= pageBytes {
		return r.printPage()
	}
	return nil
}

func (r *Rows) printPage() error {
	r.started = true
	r.width = len("KEY")
	for _, row := range r.page {
		if width := text.StringWidth(row.key); width <= min(widest, r.keyColumns()) {
			r.width = max(r.width, width)
		}
	}
	if err := r.printRow(pageRow{"KEY", "VALUE"}); err != nil {
		return err
	}
	for _, row := range r.page {
		if err := r.printRow(row); err != nil {
			return err
		}
	}
	r.page = nil
	return nil
}

func (r *Rows) printRow(row pageRow) error {
	if width := r.screen.columns(); width > 0 {
		row.key = r.fit(row.key, r.keyColumns())
		row.value = r.fit(row.value, width-between-max(r.width, text.StringWidth(row.key)))
	}
	r.line = append(r.line[:0], row.key...)
	if !r.keysOnly {
		if row.value != "" {
			for range max(r.width-text.StringWidth(row.key), 0) + between {
				r.line = append(r.line, ' ')
			}
		}
		r.line = append(r.line, row.value...)
	}
	r.line = append(r.line, '\n')
	_, err := r.out.Write(r.line)
	return err
}

// keyColumns returns the maximum width of a key, which leaves space for a value.
func (r *Rows) keyColumns() int {
	switch width := r.screen.columns(); {
	case width == 0:
		return math.MaxInt
	case r.keysOnly:
		return width
	default:
		return max(width-between-shortest, (width-between)/2)
	}
}

// fit shortens a cell to a number of columns.
func (r *Rows) fit(cell string, columns int) string {
	cell, cut := Fit(cell, columns)
	r.cut = r.cut || cut
	return cell
}

// Flush prints the rows held back. A table without rows prints nothing.
func (r *Rows) Flush() error {
	if len(r.page) > 0 {
		if err := r.printPage(); err != nil {
			return err
		}
	}
	if r.cut {
		note := r.screen.Text("(… marks what was cut; --output json has all)\n")
		if _, err := r.out.WriteString(note); err != nil {
			return err
		}
	}
	if r.format == TSV && !r.headed {
		r.line = r.line[:0]
		r.head()
		if _, err := r.out.Write(r.line); err != nil {
			return err
		}
	}
	return r.out.Flush()
}
