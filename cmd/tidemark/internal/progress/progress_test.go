package progress

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLinesWhereThereIsNoTerminal(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := Start(Options{Out: &out, What: "load fruit", Unit: "records", Total: 1000,
		Now: func() time.Time {
			return now
		}})
	for done := uint64(0); done <= 1000; done += 100 {
		p.Set(done)
		now = now.Add(time.Second)
	}
	p.Stop()
	want := "load fruit: 500 of 1000 (50 %) records, 100/s\n" +
		"load fruit: 1000 of 1000 (100 %) records, 100/s\n"
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
	if p.Elapsed() != 11*time.Second {
		t.Errorf("elapsed %s", p.Elapsed())
	}
	out.Reset()
	quiet := Start(Options{Out: &out, Quiet: true, Terminal: true})
	quiet.Set(10)
	quiet.Stop()
	if out.Len() > 0 {
		t.Errorf("quiet printed %q", out.String())
	}
}

func TestBarLeavesACleanLine(t *testing.T) {
	for _, total := range []uint64{0, 500} {
		var out bytes.Buffer
		p := Start(Options{Out: &out, Terminal: true, What: "load fruit", Unit: "records",
			Total: total})
		for done := range uint64(500) {
			p.Set(done)
		}
		p.Stop()
		if strings.Contains(out.String(), "\n") {
			t.Errorf("total %d: the bar left a line: %q", total, out.String())
		}
	}
}

func TestLine(t *testing.T) {
	var out bytes.Buffer
	l := Line{Out: &out, Terminal: true}
	l.Show("long text")
	l.Show("short")
	l.Stop()
	if want := "\rlong text\rshort    \r     \r"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	plain := Line{Out: &out}
	plain.Show("a")
	plain.Stop()
	if out.String() != "a\n" {
		t.Errorf("%q", out.String())
	}
}
