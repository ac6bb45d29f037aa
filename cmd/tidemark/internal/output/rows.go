package output

import (
	"bufio"
	"io"
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
	// screen is how wide a row may be, 0 without end; cut says that one was shortened.
	screen int
	cut    bool
}

type pageRow struct{ key, value string }

// A table aligns its first page (this many rows or bytes) and keeps that width: later keys that are
// longer stick out.
const (
	pageRows  = 512
	pageBytes = 256 << 10
	// A key column is never padded wider than this: one long key should not push all values off the
	// screen.
	widest = 100
)

// NewRows begins a stream of rows. Call Flush at the end, also after an error, so that what came
// before it is printed.
func NewRows(out io.Writer, format Format, keysOnly bool) *Rows {
	return &Rows{out: bufio.NewWriterSize(out, 64<<10), format: format, keysOnly: keysOnly,
		page: make([]pageRow, 0, pageRows)}
}

// Screen makes the rows of a table fit a terminal of so many columns.
func (r *Rows) Screen(columns int) *Rows {
	if columns > 0 {
		r.screen = max(columns, defaultWidth)
	}
	return r
}

// Write prints one row. It does not keep key and value. Only JSON shows when the value expires;
// zero: it does not.
func (r *Rows) Write(key, value []byte, expires time.Time) error {
	r.line = r.line[:0]
	switch r.format {
	case JSON:
		r.line = records.AppendJSONObject(r.line, records.Record{Key: key, Value: value,
			Expires: expires},
			r.keysOnly)
	case TSV:
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
		if width := text.StringWidth(row.key); width <= widest {
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
	row.key = r.fit(row.key, r.screen)
	if used := max(r.width, text.StringWidth(row.key)) + between; r.screen > 0 {
		row.value = r.fit(row.value, max(r.screen-used, shortest))
	}
	r.line = append(r.line[:0], row.key...)
	if !r.keysOnly {
		if row.value != "" {
			for range max(r.width-text.StringWidth(row.key), 0) + 2 {
				r.line = append(r.line, ' ')
			}
		}
		r.line = append(r.line, row.value...)
	}
	r.line = append(r.line, '\n')
	_, err := r.out.Write(r.line)
	return err
}

// fit shortens a cell to so many columns.
func (r *Rows) fit(cell string, columns int) string {
	if r.screen == 0 || len(cell) <= columns || text.StringWidth(cell) <= columns {
		return cell
	}
	r.cut = true
	return text.Snip(cell, columns, "…")
}

// Flush prints what is held back. A table without rows prints nothing.
func (r *Rows) Flush() error {
	if len(r.page) > 0 {
		if err := r.printPage(); err != nil {
			return err
		}
	}
	if r.cut {
		if _, err := r.out.WriteString("(… marks what was cut; --output json has all)\n"); err != nil {
			return err
		}
	}
	return r.out.Flush()
}
