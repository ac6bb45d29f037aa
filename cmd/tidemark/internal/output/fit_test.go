package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
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
	hundred := Screen{Width: 100}
	l := NewList(nil, Table, Column{Name: "id", Number: true}, Column{Name: "region"},
		Column{Name: "notes"}, Column{Name: "version", Detail: true}).On(hundred)
	l.Row(1, nil, strings.Repeat("n", 90), "v1.2.3")
	l.Row(2, nil, "n", "v1.2.3")
	lines := render(t, l)
	if want := "(not shown: version; --output json has all)"; lines[len(lines)-1] != want ||
		!strings.Contains(lines[1], strings.Repeat("n", 90)) {
		t.Errorf("%q\nwant at the end %q", lines, want)
	}
	l = NewList(nil, Table, Column{Name: "key"}, Column{Name: "n", Number: true}).On(hundred)
	l.Row([]byte(strings.Repeat("k", 200)), 1234)
	lines = render(t, l)
	if want := "(… marks what was cut; --output json has all)"; lines[2] != want ||
		text.StringWidth(lines[1]) != 100 || !strings.HasSuffix(lines[1], "…  1234") {
		t.Errorf("%q\nwant at the end %q", lines, want)
	}
	if lines = render(t, l.On(Screen{Width: 300})); len(lines) != 2 {
		t.Errorf("on a wide screen: %q", lines)
	}
}

// Whatever is in it, a table is no wider than the terminal, and nothing is missing without a word.
func TestTablesFitAlways(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []Column
		for range rapid.IntRange(1, 14).Draw(t, "columns") {
			columns = append(columns,
				Column{Name: rapid.StringMatching("[a-z]{1,12}").Draw(t, "name"),
					Number: rapid.Bool().Draw(t, "number"), Detail: rapid.Bool().Draw(t, "detail"),
					Whole: rapid.Bool().Draw(t, "whole"), Sentences: rapid.Bool().Draw(t, "sentences")})
		}
		width := rapid.IntRange(20, 140).Draw(t, "width")
		l := NewList(nil, Table, columns...).On(Screen{Width: width})
		nothing := 0
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			row := make([]any, len(columns))
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
		for _, line := range lines {
			if w := text.StringWidth(line); w > width {
				t.Fatalf("%d of %d columns: %q of %v", w, width, lines, shown.widths)
			}
		}
		upright := len(l.rows) == 1 && len(shown.without) > 0
		all := strings.Join(strings.Fields(strings.Join(lines, "")), "")
		note := strings.Contains(all, "jsonhasall")
		if note != (!upright && (len(shown.without) > 0 || shown.cut)) ||
			len(shown.without)+len(shown.columns)+nothing < len(columns) {
			t.Fatalf("it said %v, without %q, cut %v: %q", note, shown.without, shown.cut, lines)
		}
	})
}

// Where there is no terminal nothing is cut or left out, and one long cell does not widen others.
func TestNothingIsCutThroughAPipe(t *testing.T) {
	l := NewList(nil, Table, Column{Name: "key"}, Column{Name: "why", Sentences: true},
		Column{Name: "n", Number: true, Detail: true})
	long := strings.Repeat("long ", 100_000)
	l.Row([]byte("a"), long, 1)
	l.Row([]byte("b"), "short", 2)
	want := []string{"KEY  WHY    N", "a    " + long + "  1", "b    short  2"}
	if lines := render(t, l); !slices.Equal(lines, want) {
		t.Errorf("%.200q", lines)
	}
	var out bytes.Buffer
	r := NewRows(&out, Table, false)
	if err := errors.Join(r.Write([]byte("key"), []byte(long), time.Time{}), r.Flush()); err != nil ||
		out.String() != "KEY  VALUE\nkey  "+long+"\n" {
		t.Errorf("%v: %.200q", err, out.String())
	}
}

// Sentences are wrapped between words; the only row of a table that does not fit is shown upright.
func TestSentencesAreWrapped(t *testing.T) {
	columns := []Column{{Name: "id", Number: true}, {Name: "state", Detail: true},
		{Name: "why", Sentences: true}}
	l := NewList(nil, Table, columns...).On(Screen{Width: 44, Color: true})
	l.Row(1, "well", "a leader moves to the node that has few of them")
	l.Row(22, Toned("bad", Bad), "short")
	want := []string{"ID  STATE  WHY",
		" 1  well   a leader moves to the node that",
		"           has few of them",
		"22  \x1b[1;31mbad\x1b[0m    short"}
	if lines := render(t, l); !slices.Equal(lines, want) {
		t.Errorf("%q, want\n%q", lines, want)
	}
	l = NewList(nil, Table, columns...).On(Screen{Width: 24})
	l.Row(1, "well", "a leader moves to the node")
	want = []string{"ID     1", "STATE  well", "WHY    a leader moves to", "       the node"}
	if lines := render(t, l); !slices.Equal(lines, want) {
		t.Errorf("%q, want\n%q", lines, want)
	}
}

// The rows of a scan fit, whatever their keys and values are.
func TestRowsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var out bytes.Buffer
		width := rapid.IntRange(20, 140).Draw(t, "width")
		r := NewRows(&out, Table, rapid.Bool().Draw(t, "keys only")).On(Screen{Width: width})
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			if err := r.Write([]byte(rapid.StringN(1, 200, 200).Draw(t, "key")),
				[]byte(rapid.StringN(0, 200, 200).Draw(t, "value")), time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if w := text.StringWidth(strings.TrimSuffix(line, "\n")); w > width {
				t.Fatalf("%d of %d columns: %q", w, width, out.String())
			}
		}
	})
}

// Text that was written for wide lines is laid out anew, lists and their entries too.
func TestReflow(t *testing.T) {
	written := `One sentence that is long,
and one more.

    0  it did what it
       was asked to
  130  interrupted

  tidemark put a b
  tidemark get a`
	want := `One sentence that is
long, and one more.

    0  it did what
       it was asked
       to
  130  interrupted

  tidemark put a b
  tidemark get a`
	if got := (Screen{Width: 20}).Reflow(written); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := (Screen{}).Reflow(written); got != written {
		t.Errorf("through a pipe: %s", got)
	}
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
	l.Row(Cell{People: "2 of 3", Programs: 3},
		Cell{People: []string{"1", "2 (learner)"}, Programs: []uint64{1, 2}},
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
