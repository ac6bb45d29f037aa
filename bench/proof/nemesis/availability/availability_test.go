package availability

import (
	"slices"
	"strings"
	"testing"
	"time"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// at is a moment, in milliseconds.
func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

func lengths(gaps []Gap) []int {
	var ms []int
	for _, g := range gaps {
		ms = append(ms, int(g.Length().Milliseconds()))
	}
	return ms
}

func TestMeterKeepsTheLongestGapOfEachPartition(t *testing.T) {
	m := NewMeter(3)
	for p := range 3 {
		m.Answered(p, at(0), at(1))
	}
	m.Answered(0, at(800), at(900)) // a gap before the fault, which does not count
	m.Answered(1, at(800), at(900))
	m.Begin(at(1000))
	m.Answered(0, at(1005), at(1010))
	m.Answered(0, at(1400), at(1510)) // 500
	m.Answered(0, at(1600), at(1700))
	m.Answered(1, at(1100), at(1200)) // since Begin, not since the last answer
	if got, want := lengths(m.End(at(1750))), []int{500, 550, 750}; !slices.Equal(got, want) {
		t.Errorf("gaps %v ms, want %v", got, want)
	}
	if got := m.End(at(1750))[0]; got != (Gap{at(1010), at(1510)}) {
		t.Errorf("the gap was %v", got)
	}
	m.Begin(at(1750))
	if got, want := lengths(m.End(at(1760))), []int{10, 10, 10}; !slices.Equal(got, want) {
		t.Errorf("a new window begins with %v ms, want %v", got, want)
	}
}

func TestMeterEndInThePastOfAnAnswer(t *testing.T) {
	m := NewMeter(1)
	m.Begin(at(0))
	m.Answered(0, at(10), at(20))
	if got := lengths(m.End(at(15))); got[0] != 20 {
		t.Errorf("gap %v ms, want 20", got)
	}
}

func TestSilent(t *testing.T) {
	m := NewMeter(3)
	m.Answered(0, at(10), at(30))
	m.Answered(1, at(20), at(25))
	if got := m.Silent(at(15)); !slices.Equal(got, []int{0, 2}) {
		t.Errorf("silent: %v, want 0 (asked before) and 2 (never answered)", got)
	}
}

func TestFigures(t *testing.T) {
	var ten []time.Duration
	for i := 10; i >= 1; i-- {
		ten = append(ten, time.Duration(i))
	}
	for _, c := range []struct {
		of   []time.Duration
		want Figures
	}{
		{nil, Figures{}},
		{[]time.Duration{7}, Figures{7, 7, 7}},
		{[]time.Duration{2, 1}, Figures{1, 2, 2}},
		{ten, Figures{5, 9, 10}},
	} {
		if got := FiguresOf(c.of); got != c.want {
			t.Errorf("%v: %v, want %v", c.of, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	s := time.Second
	rows := Table([]Sample{
		{Kind: "pause", Quorum: true, Hold: 4 * s, Writes: 2 * s, Reads: s},
		{Kind: "kill", Quorum: false, Hold: 9 * s, Writes: 9 * s, Reads: 9 * s},
		{Kind: "kill", Quorum: true, Hold: 3 * s, Writes: s, Reads: s},
		{Kind: "kill", Quorum: true, Hold: 5 * s, Writes: 3 * s, Reads: 2 * s},
		{Kind: "kill", Quorum: true, Hold: 5 * s, Writes: 60 * s, Reads: 60 * s,
			LeftOut: "the machine was suspended"},
		{Kind: "odd", Quorum: true, LeftOut: "the machine was suspended"},
	})
	if len(rows) != 4 || rows[0].Count != 2 || rows[0].LeftOut != 1 || rows[2].Count != 0 {
		t.Errorf("rows: %+v", rows)
	}
	want := `| kill | yes | 2 | 3.00, 5.00 | 1.00, 3.00, 3.00 | 1.00, 2.00, 2.00 |
| kill | no | 1 | 9.00, 9.00 | 9.00, 9.00, 9.00 | 9.00, 9.00, 9.00 |
| pause | yes | 1 | 4.00, 4.00 | 2.00, 2.00, 2.00 | 1.00, 1.00, 1.00 |
`
	if got := Markdown(rows); !strings.HasSuffix(got, "---: |\n"+want) {
		t.Errorf("the table is\n%s\nwant at its end\n%s", got, want)
	}
}
