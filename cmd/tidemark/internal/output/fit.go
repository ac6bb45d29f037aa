package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
)

const (
	// defaultWidth is how wide a table may be where the width of the screen is not known.
	defaultWidth = 100
	// shortest is the width below which no cell is cut.
	shortest = 16
	// between columns are so many blanks.
	between = 2
)

// fitted is a table that is no wider than it may be, and what was left out for that.
type fitted struct {
	columns []Column
	rows    [][]string
	widths  []int
	// without names the columns that are not shown, but for those in which there is nothing; cut
	// says that cells were shortened.
	without []string
	cut     bool
	// width is that of the terminal.
	width int
}

// fit makes the table fit: empty columns go first, then those that are details, from the right;
// then the widest texts are cut; and at last the rightmost columns go, but for the first.
func (l *List) fit() *fitted {
	f := &fitted{rows: make([][]string, len(l.rows)), width: l.width}
	for i, c := range l.columns {
		if c.Programs {
			continue
		}
		f.columns = append(f.columns, c)
		width := text.StringWidth(c.Name)
		for r, row := range l.rows {
			cell := tableCell(people(row[i]))
			f.rows[r] = append(f.rows[r], cell)
			width = max(width, text.StringWidth(cell))
		}
		f.widths = append(f.widths, width)
	}
	for i := len(f.columns) - 1; i > 0 && f.over(l.width) > 0; i-- {
		if f.empty(i) {
			f.drop(i)
			f.without = nil
		}
	}
	for i := len(f.columns) - 1; i > 0 && f.over(l.width) > 0; i-- {
		if f.columns[i].Detail {
			f.drop(i)
		}
	}
	for f.over(l.width) > 0 && f.shorten(f.over(l.width)) {
	}
	for f.over(l.width) > 0 && len(f.columns) > 1 {
		f.drop(len(f.columns) - 1)
	}
	return f
}

// over is by how much the table is too wide.
func (f *fitted) over(width int) int {
	total := between * (len(f.widths) - 1)
	for _, w := range f.widths {
		total += w
	}
	return total - width
}

// empty says that a column shows nothing.
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
	}
}

// shorten cuts the widest text column, by no more than it must, and says whether one could be cut.
func (f *fitted) shorten(by int) bool {
	widest := -1
	for i, w := range f.widths {
		if !f.columns[i].Number && !f.columns[i].Whole &&
			w > max(shortest, text.StringWidth(f.columns[i].Name)) &&
			(widest < 0 || w > f.widths[widest]) {
			widest = i
		}
	}
	if widest < 0 {
		return false
	}
	least := max(shortest, text.StringWidth(f.columns[widest].Name))
	// Not below the next one: columns of much text share what there is.
	for i, w := range f.widths {
		if i != widest && !f.columns[i].Number && w < f.widths[widest] {
			least = max(least, w)
		}
	}
	to := max(f.widths[widest]-by, min(least, f.widths[widest]-1))
	for _, row := range f.rows {
		if text.StringWidth(row[widest]) > to {
			row[widest] = text.Snip(row[widest], to, "…")
			f.cut = true
		}
	}
	f.widths[widest] = to
	return true
}

// write prints the table, and what is not in it.
func (f *fitted) write(out io.Writer) error {
	header := make([]string, len(f.columns))
	for i, c := range f.columns {
		header[i] = strings.ToUpper(c.Name)
	}
	var b strings.Builder
	f.line(&b, header)
	for _, row := range f.rows {
		f.line(&b, row)
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return err
	}
	var said []string
	if len(f.without) > 0 {
		said = append(said, "not shown: "+strings.Join(f.without, ", "))
	}
	if f.cut {
		said = append(said, "… marks what was cut")
	}
	if len(said) == 0 {
		return nil
	}
	note := fmt.Sprintf("(%s; --output json has all)", strings.Join(said, "; "))
	_, err := fmt.Fprintln(out, text.WrapSoft(note, f.width))
	return err
}

// line appends the cells, each at its width, without blanks at the end.
func (f *fitted) line(b *strings.Builder, cells []string) {
	var line strings.Builder
	for i, cell := range cells {
		pad := strings.Repeat(" ", max(f.widths[i]-text.StringWidth(cell), 0))
		if f.columns[i].Number {
			line.WriteString(pad + cell)
		} else {
			line.WriteString(cell + pad)
		}
		line.WriteString(strings.Repeat(" ", between))
	}
	b.WriteString(strings.TrimRight(line.String(), " "))
	b.WriteByte('\n')
}
