package output

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"pgregory.net/rapid"
)

func render(t interface{ Fatal(...any) }, l *List) []string {
	var out bytes.Buffer
	l.out = &out
	if err := l.Flush(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// A table that would be too wide leaves out empty columns and details, then cuts, and says so.
func TestTablesFit(t *testing.T) {
	l := NewList(nil, Table, Column{Name: "id", Number: true}, Column{Name: "region"},
		Column{Name: "notes"}, Column{Name: "version", Detail: true})
	l.Row(1, nil, strings.Repeat("n", 90), "v1.2.3")
	lines := render(t, l)
	if want := "(not shown: version; --output json has all)"; lines[len(lines)-1] != want ||
		!strings.Contains(lines[1], strings.Repeat("n", 90)) {
		t.Errorf("%q\nwant at the end %q", lines, want)
	}
	l = NewList(nil, Table, Column{Name: "key"}, Column{Name: "n", Number: true})
	l.Row([]byte(strings.Repeat("k", 200)), 1234)
	lines = render(t, l)
	if want := "(… marks what was cut; --output json has all)"; lines[2] != want ||
		text.StringWidth(lines[1]) != 100 || !strings.HasSuffix(lines[1], "…  1234") {
		t.Errorf("%q\nwant at the end %q", lines, want)
	}
	if lines = render(t, l.Width(300)); len(lines) != 2 {
		t.Errorf("on a wide screen: %q", lines)
	}
}

// Whatever is in it, a table is no wider than it may be, and nothing is missing without a word.
func TestTablesFitAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []Column
		for range rapid.IntRange(1, 14).Draw(t, "columns") {
			columns = append(columns,
				Column{Name: rapid.StringMatching("[a-z]{1,12}").Draw(t, "name"),
					Number: rapid.Bool().Draw(t, "number"), Detail: rapid.Bool().Draw(t, "detail")})
		}
		l := NewList(nil, Table, columns...)
		columnsAsked := len(columns)
		nothing := 0
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			row := make([]any, columnsAsked)
			for i, c := range columns {
				switch {
				case rapid.Bool().Draw(t, "none"):
				case c.Number:
					row[i] = rapid.IntRange(0, 1<<40).Draw(t, "number")
				default:
					row[i] = []byte(rapid.StringN(0, 60, 200).Draw(t, "text"))
				}
			}
			l.Row(row...)
		}
		shown := l.fit()
		for i := range columns {
			if (&fitted{rows: cellsOf(l)}).empty(i) {
				nothing++
			}
		}
		lines := render(t, l)
		for _, line := range lines[:len(l.rows)+1] {
			if w := text.StringWidth(line); w > 100 {
				t.Fatalf("%d columns: %q of %v", w, lines, shown.widths)
			}
		}
		if said := len(lines) > len(l.rows)+1; said != (len(shown.without) > 0 || shown.cut) ||
			len(shown.without)+len(shown.columns)+nothing < columnsAsked {
			t.Fatalf("it said %v, without %q, cut %v", said, shown.without, shown.cut)
		}
	})
}

func cellsOf(l *List) (rows [][]string) {
	for _, row := range l.rows {
		var cells []string
		for _, cell := range row {
			cells = append(cells, tableCell(people(cell)))
		}
		rows = append(rows, cells)
	}
	return rows
}

// What a terminal would act on is escaped wherever text of others is shown, and JSON still means
// the same.
func TestNothingReachesTheTerminal(t *testing.T) {
	evil := "a\x1b[31m\u009b31m\u202eb\u200b\u2066\ufeff\u2028\U000e0001\x07é😀"
	for _, format := range []Format{Table, JSON, TSV} {
		var out bytes.Buffer
		l := NewList(&out, format, Column{Name: "text"}, Column{Name: "list"}, Column{Name: "bytes"})
		l.Row(evil, []string{evil}, []byte(evil))
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		r := NewRows(&out, format, false)
		if err := r.Write([]byte(evil), []byte(evil), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(out.String(),
			"\x1b\u009b\u202e\u200b\u2066\ufeff\u2028\U000e0001\x07") ||
			!strings.Contains(out.String(), "é😀") {
			t.Errorf("%s: %q", format, out.String())
		}
		if format == JSON {
			var row struct {
				Text, Bytes string
				List        []string
			}
			if err := json.Unmarshal(out.Bytes()[:bytes.IndexByte(out.Bytes(), '\n')],
				&row); err != nil || row.Text != evil || row.Bytes != evil || row.List[0] != evil {
				t.Errorf("%v: %+v", err, row)
			}
		}
	}
	var out bytes.Buffer
	screen := Terminal(&out)
	for _, b := range []byte(evil + "\n\t\\\xff") {
		if _, err := screen.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	want := `a\x1b[31m\xc2\x9b31m\xe2\x80\xaeb\xe2\x80\x8b\xe2\x81\xa6` +
		`\xef\xbb\xbf\xe2\x80\xa8\xf3\xa0\x80\x81\x07é😀` + "\n\t\\\\xff"
	if out.String() != want {
		t.Errorf("%q\nwant %q", out.String(), want)
	}
	if got := Plain("a\u202eb\xe2\x80"); got != `a\xe2\x80\xaeb\xe2\x80` {
		t.Errorf("%q", got)
	}
}

// Numbers are numbers in JSON, times are seconds, and what people see may differ.
func TestJSONNumbers(t *testing.T) {
	l := NewList(io.Discard, JSON, Column{Name: "nodes"}, Column{Name: "replicas"},
		Column{Name: "gc window"}, Column{Name: "size"}, Column{Name: "only", Programs: true})
	l.Row(Cell{"2 of 3", 3}, Cell{[]string{"1", "2 (learner)"}, []uint64{1, 2}},
		90*time.Minute+time.Millisecond, Size(7), []uint64{})
	if got, want := render(t,
		l)[0], `{"nodes":3,"replicas":[1,2],"gc_window":5400.001,"size":7,"only":[]}`; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	l.format = Table
	if got, want := render(t, l), "2 of 3  1,2 (learner)  1h30m0.001s  7 B"; len(got) != 2 ||
		strings.Contains(got[0], "ONLY") || got[1] != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
