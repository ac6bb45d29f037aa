package output

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Column is one column of a List. Its name is the header in the table. In json and tsv, the name
// has underscores instead of spaces.
type Column struct {
	Name string
	// Number aligns the column to the right.
	Number bool
	// Detail: if the table is too wide, this column is left out before others are cut.
	Detail bool
	// Whole: the cells are not cut, because a part of such a cell (an id, for instance) is useless.
	Whole bool
	// Sentences are wrapped on a terminal, not cut.
	Sentences bool
	// Programs: the column is only for programs, and not in a table.
	Programs bool
}

// Size is a number of bytes. A table shows it with a unit. Other formats show the plain number.
type Size uint64

// List is a short table: it is kept in memory, and printed by Flush.
type List struct {
	out     io.Writer
	format  Format
	columns []Column
	rows    [][]any
	screen  Screen
	all     string
}

// NewList begins a list. Without On, its table may have any width.
func NewList(out io.Writer, format Format, columns ...Column) *List {
	return &List{out: out, format: format, columns: columns, all: "--output json"}
}

// On sets the screen that shows the list.
func (l *List) On(screen Screen) *List {
	l.screen = screen
	return l
}

// All sets the text that says how to see the cut parts of a table. The default is "--output json".
func (l *List) All(how string) *List {
	l.all = how
	return l
}

// Row adds a row with one cell for each column: a string, []byte, bool, integer, Size, []string,
// []uint64, time.Duration, fmt.Stringer, Cell or nil.
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
		header := ""
		if l.screen.Headers {
			header = strings.Join(names, "\t")
		}
		return l.flushLines(header, func(cell any) string {
			return records.Escape(plainBytes(programs(cell)))
		})
	case Raw:
		return l.flushLines("", func(cell any) string { return rawCell(programs(cell)) })
	default:
		f := l.fit()
		if len(l.rows) == 1 && len(f.without) > 0 {
			return l.natural().writeUpright(l.out)
		}
		return f.write(l.out)
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
			cell = programs(cell)
			name := l.columns[i].fieldName()
			if bytes, ok := cell.([]byte); ok && bytes != nil {
				b = records.AppendJSONField(b, name, bytes)
				continue
			}
			b = strconv.AppendQuote(b, name)
			b = append(b, ':')
			var err error
			if b, err = appendJSON(b, cell); err != nil {
				return err
			}
		}
		b = append(b, '}', '\n')
	}
	_, err := l.out.Write(b)
	return err
}

// String formats the size with a unit of 1024.
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
