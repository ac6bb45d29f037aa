package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Column is one column of a List. Its name is the header of the table, and with underscores for spaces the name in json
// and tsv.
type Column struct {
	Name string
	// Number aligns the column to the right.
	Number bool
}

// Size is a number of bytes: with a unit in a table, plain elsewhere.
type Size uint64

// List is a short table: all of it is in memory, and printed by Flush.
type List struct {
	out     io.Writer
	format  Format
	columns []Column
	rows    [][]any
}

// NewList begins a list.
func NewList(out io.Writer, format Format, columns ...Column) *List {
	return &List{out: out, format: format, columns: columns}
}

// Row adds a row: one cell for each column, each a string, []byte, bool, integer, Size, []string, fmt.Stringer or nil.
func (l *List) Row(cells ...any) {
	if len(cells) != len(l.columns) {
		panic(fmt.Sprintf("output: a row of %d cells for %d columns", len(cells), len(l.columns)))
	}
	l.rows = append(l.rows, cells)
}

// Flush prints the list.
func (l *List) Flush() error {
	switch l.format {
	case JSON:
		return l.flushJSON()
	case TSV:
		names := make([]string, len(l.columns))
		for i, c := range l.columns {
			names[i] = c.fieldName()
		}
		return l.flushLines(strings.Join(names, "\t"), func(cell any) string { return records.Escape(plainBytes(cell)) })
	case Raw:
		return l.flushLines("", func(cell any) string { return string(plainBytes(cell)) })
	default:
		return l.flushTable()
	}
}

func (c Column) fieldName() string {
	return strings.ReplaceAll(strings.ToLower(c.Name), " ", "_")
}

func (l *List) flushLines(header string, show func(any) string) error {
	var b strings.Builder
	if header != "" {
		b.WriteString(header)
		b.WriteByte('\n')
	}
	for _, row := range l.rows {
		for i, cell := range row {
			if i > 0 {
				b.WriteByte('\t')
			}
			b.WriteString(show(cell))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(l.out, b.String())
	return err
}

func (l *List) flushJSON() error {
	var b []byte
	for _, row := range l.rows {
		b = append(b, '{')
		for i, cell := range row {
			if i > 0 {
				b = append(b, ',')
			}
			name := l.columns[i].fieldName()
			if bytes, ok := cell.([]byte); ok && bytes != nil {
				b = records.AppendJSONField(b, name, bytes)
				continue
			}
			b = strconv.AppendQuote(b, name)
			b = append(b, ':')
			value, err := json.Marshal(jsonCell(cell))
			if err != nil {
				return err
			}
			b = append(b, value...)
		}
		b = append(b, '}', '\n')
	}
	_, err := l.out.Write(b)
	return err
}

// jsonCell turns a cell into what encoding/json prints well.
func jsonCell(cell any) any {
	switch c := cell.(type) {
	case []byte: // nil: the others were printed already
		return nil
	case Size:
		return uint64(c)
	case fmt.Stringer:
		return c.String()
	}
	return cell
}

func (l *List) flushTable() error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Options = table.OptionsNoBordersAndSeparators
	style.Format.Header = text.FormatUpper
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	t.SetStyle(style)
	header := make(table.Row, len(l.columns))
	configs := make([]table.ColumnConfig, 0, len(l.columns))
	for i, c := range l.columns {
		header[i] = c.Name
		if c.Number {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	for _, row := range l.rows {
		cells := make(table.Row, len(row))
		for i, cell := range row {
			cells[i] = tableCell(cell)
		}
		t.AppendRow(cells)
	}
	return writeTrimmed(l.out, t.Render())
}

func tableCell(cell any) string {
	switch c := cell.(type) {
	case nil:
		return "-"
	case []byte:
		return records.Escape(c)
	case bool:
		if c {
			return "yes"
		}
		return "no"
	case Size:
		return c.String()
	}
	return records.Escape(plainBytes(cell))
}

// plainBytes is a cell as it is, for raw and, escaped, for tsv.
func plainBytes(cell any) []byte {
	switch c := cell.(type) {
	case nil:
		return nil
	case []byte:
		return c
	case string:
		return []byte(c)
	case []string:
		return []byte(strings.Join(c, ","))
	case Size:
		return strconv.AppendUint(nil, uint64(c), 10)
	}
	return fmt.Append(nil, cell)
}

// String shows the size with a unit of 1024.
func (s Size) String() string {
	const units = "KMGTPE"
	if s < 1024 {
		return fmt.Sprintf("%d B", uint64(s))
	}
	value, unit := float64(s)/1024, 0
	for value >= 1024 && unit < len(units)-1 {
		value /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}

// writeTrimmed prints lines without the blanks at their ends.
func writeTrimmed(out io.Writer, lines string) error {
	var b strings.Builder
	for line := range strings.SplitSeq(lines, "\n") {
		b.WriteString(strings.TrimRight(line, " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}
