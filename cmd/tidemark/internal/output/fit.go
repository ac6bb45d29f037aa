package output

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	// shortest is a width. No column is made narrower than that as long as another column can be left
	// out.
	shortest = 16
	// readable is the maximum width that is assumed for a column of sentences when columns to leave
	// out are chosen.
	readable = 32
	// widest is the maximum padding of a column without a terminal, so that one long value does not
	// fill the other rows with blanks.
	widest = 100
	// between is the number of blanks between columns.
	between = 2
)

// fitted is a table that fits the terminal, and the names of the parts that were left out.
type fitted struct {
	screen  Screen
	columns []Column
	rows    [][]string
	tones   [][]Tone
	widths  []int
	// without has the names of the columns that were left out, except empty ones. cut: cells were
	// shortened.
	without []string
	cut     bool
	// all says how to see the parts that were left out.
	all string
}

// fit makes the table fit, by as many of these steps as necessary: remove empty columns; remove
// details, from the right; cut other texts, the widest first; remove columns from the right, except
// the first and sentences; wrap sentences to the remaining width; remove sentences; cut the first
// column.
func (l *List) fit() *fitted {
	f := l.natural()
	width := l.screen.columns()
	if width == 0 {
		return f
	}
	sentences := make([]int, len(f.widths))
	for i, c := range f.columns {
		sentences[i] = f.widths[i]
		if c.Sentences {
			f.widths[i] = min(f.widths[i], readable)
		}
	}
	drop := func(i int) {
		f.drop(i)
		sentences = append(sentences[:i:i], sentences[i+1:]...)
	}
	for i := len(f.columns) - 1; i > 0 && f.over(width) > 0; i-- {
		if f.empty(i) {
			without := f.without
			drop(i)
			f.without = without
		}
	}
	for i := len(f.columns) - 1; i > 0 && f.over(width) > 0; i-- {
		if f.columns[i].Detail {
			drop(i)
		}
	}
	for f.over(width) > 0 && f.narrow(f.over(width)) {
	}
	for i := len(f.columns) - 1; i > 0 && f.over(width) > 0; i-- {
		if !f.columns[i].Sentences {
			drop(i)
		}
	}
	for i := len(f.columns) - 1; i > 0 && f.over(width) > 0; i-- {
		drop(i)
	}
	if f.over(width) > 0 {
		f.widths[0] = width
	}
	for i, c := range f.columns {
		if room := -f.over(width); c.Sentences && room > 0 {
			f.widths[i] = min(f.widths[i]+room, sentences[i])
		}
	}
	f.shorten()
	return f
}

// natural returns the table in its full width.
func (l *List) natural() *fitted {
	f := &fitted{screen: l.screen, all: l.all, rows: make([][]string, len(l.rows)),
		tones: make([][]Tone, len(l.rows))}
	most := widest
	if l.screen.Width > 0 {
		most = math.MaxInt
	}
	for i, c := range l.columns {
		if c.Programs {
			continue
		}
		f.columns = append(f.columns, c)
		width := text.StringWidth(c.Name)
		for r, row := range l.rows {
			cell := tableCell(people(row[i]))
			f.rows[r] = append(f.rows[r], cell)
			f.tones[r] = append(f.tones[r], toneOf(row[i]))
			if w := text.StringWidth(cell); w <= most {
				width = max(width, w)
			}
		}
		f.widths = append(f.widths, width)
	}
	return f
}

// over returns by how much the table is too wide.
func (f *fitted) over(width int) int {
	total := between * (len(f.widths) - 1)
	for _, w := range f.widths {
		total += w
	}
	return total - width
}

// empty reports whether a column has no content.
func (f *fitted) empty(column int) bool {
	for _, row := range f.rows {
		if row[column] != "-" {
			return false
		}
	}
	return true
}

func (f *fitted) drop(column int) {
	f.without = append([]string{f.columns[column].Name}, f.without...)
	f.columns = append(f.columns[:column:column], f.columns[column+1:]...)
	f.widths = append(f.widths[:column:column], f.widths[column+1:]...)
	for r, row := range f.rows {
		f.rows[r] = append(row[:column:column], row[column+1:]...)
		f.tones[r] = append(f.tones[r][:column:column], f.tones[r][column+1:]...)
	}
}

// narrow cuts the widest text column, by at most the given number, and reports whether it could.
func (f *fitted) narrow(by int) bool {
	column := -1
	for i, w := range f.widths {
		if !f.columns[i].Number && !f.columns[i].Whole &&
			w > max(shortest, text.StringWidth(f.columns[i].Name)) &&
			(column < 0 || w > f.widths[column]) {
			column = i
		}
	}
	if column < 0 {
		return false
	}
	least := max(shortest, text.StringWidth(f.columns[column].Name))
	// A column is not made narrower than the next widest one, so that columns with much text share the
	// space.
	for i, w := range f.widths {
		if i != column && !f.columns[i].Number && w < f.widths[column] {
			least = max(least, w)
		}
	}
	f.widths[column] = max(f.widths[column]-by, min(least, f.widths[column]-1))
	return true
}

// shorten cuts the cells that are wider than their columns. Sentences are wrapped instead.
func (f *fitted) shorten() {
	for i, c := range f.columns {
		if c.Sentences {
			continue
		}
		for _, row := range f.rows {
			var cut bool
			row[i], cut = Fit(row[i], f.widths[i])
			f.cut = f.cut || cut
		}
	}
}

// write prints the table, and a note of the parts left out.
func (f *fitted) write(out io.Writer) error {
	header := make([]string, len(f.columns))
	for i, c := range f.columns {
		header[i] = strings.ToUpper(c.Name)
		if f.screen.Width > 0 {
			header[i], _ = Fit(header[i], f.widths[i])
		}
	}
	var b strings.Builder
	f.line(&b, header, nil)
	for r, row := range f.rows {
		f.row(&b, row, f.tones[r])
	}
	b.WriteString(f.note())
	_, err := io.WriteString(out, b.String())
	return err
}

// writeUpright prints a table with a single row, each cell on a line of its own.
func (f *fitted) writeUpright(out io.Writer) error {
	label := 0
	for _, c := range f.columns {
		label = max(label, text.StringWidth(c.Name))
	}
	label = min(label, f.screen.columns()/2)
	var b strings.Builder
	for i, c := range f.columns {
		name, _ := Fit(strings.ToUpper(c.Name), label)
		for n, part := range wrap(f.rows[0][i], f.screen.columns()-label-between) {
			if n > 0 {
				name = ""
			}
			b.WriteString(strings.TrimRight(
				name+strings.Repeat(" ", label-text.StringWidth(name)+between)+
					f.screen.Paint(f.tones[0][i], part), " "))
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// note describes the parts left out of the table.
func (f *fitted) note() string {
	var said []string
	if len(f.without) > 0 {
		said = append(said, "not shown: "+strings.Join(f.without, ", "))
	}
	if f.cut {
		said = append(said, "… marks what was cut")
	}
	if len(said) == 0 {
		return ""
	}
	return f.screen.Text(fmt.Sprintf("(%s; %s has all)\n", strings.Join(said, "; "), f.all))
}

// row appends a row. It has as many lines as the longest of its wrapped sentences.
func (f *fitted) row(b *strings.Builder, cells []string, tones []Tone) {
	parts, most := make([][]string, len(cells)), 1
	for i, cell := range cells {
		parts[i] = []string{cell}
		if f.columns[i].Sentences && f.screen.Width > 0 {
			parts[i] = wrap(cell, f.widths[i])
		}
		most = max(most, len(parts[i]))
	}
	for n := range most {
		line := make([]string, len(cells))
		for i, p := range parts {
			if n < len(p) {
				line[i] = p[n]
			}
		}
		f.line(b, line, tones)
	}
}

// line appends the cells, each at its width, without blanks at the end.
func (f *fitted) line(b *strings.Builder, cells []string, tones []Tone) {
	blanks := 0
	for i, cell := range cells {
		pad := max(f.widths[i]-text.StringWidth(cell), 0)
		tone := Plainly
		if tones != nil {
			tone = tones[i]
		}
		if f.columns[i].Number {
			blanks, pad = blanks+pad, 0
		}
		if cell != "" {
			b.WriteString(strings.Repeat(" ", blanks))
			b.WriteString(f.screen.Paint(tone, cell))
			blanks = 0
		}
		blanks += pad + between
	}
	b.WriteByte('\n')
}
