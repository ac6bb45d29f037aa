package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"time"
)

// screen is a terminal whose lines appear one after the other.
type screen struct {
	began time.Time
	lines []line
}

// line is a line of a screen.
type line struct {
	at   time.Duration
	kind string // a class of the style sheet
	text string
}

func begin() *screen { return &screen{began: time.Now()} }

func (s *screen) add(kind, text string) {
	s.lines = append(s.lines, line{time.Since(s.began), kind, text})
	fmt.Println(text)
}

// command shows a command that is given.
func (s *screen) command(text string) { s.add("command", "$ "+text) }

// note shows a line of text.
func (s *screen) note(format string, args ...any) { s.add("note", fmt.Sprintf(format, args...)) }

// result shows the last line.
func (s *screen) result(format string, args ...any) { s.add("result", fmt.Sprintf(format, args...)) }

// second shows a second of load, with a bar as long as its writes.
func (s *screen) second(n int, of second) {
	const each = 400 // writes for each mark of the bar
	s.add("load", fmt.Sprintf("%3d s %8s writes %4d failed   slowest %7s  %s", n,
		thousands(int64(of.writes)), of.failed, of.slowest.Round(time.Millisecond),
		strings.Repeat("▇", min((of.writes+each/2)/each, 40))))
}

// thousands writes a number with commas.
func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

const (
	lineHeight, margin, width = 20, 16, 920
	// hold is how long the complete recording is shown before it starts again.
	hold = 6 * time.Second
)

// svg draws the screen. A reader who has disabled animations sees all lines at once.
func (s *screen) svg() []byte {
	height := 2*margin + lineHeight*len(s.lines)
	whole := s.lines[len(s.lines)-1].at + hold
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" `+
		`font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">
<title>A server is killed under load: no acknowledged write is lost</title>
<style>
text { white-space: pre; fill: #c9d1d9 }
.command { fill: #ffffff; font-weight: bold }
.note { fill: #8b949e }
.result { fill: #56d364; font-weight: bold }
@media (prefers-reduced-motion: no-preference) {
`, width, height)
	for i, l := range s.lines {
		from := 100 * l.at.Seconds() / whole.Seconds()
		fmt.Fprintf(&b, "  @keyframes l%d { 0%%, %.3f%% { opacity: 0 } %.3f%%, 100%% { opacity: 1 } }\n",
			i, from, from+0.001)
		fmt.Fprintf(&b, "  #l%d { animation: l%d %.1fs linear infinite }\n", i, i, whole.Seconds())
	}
	fmt.Fprintf(&b, "}\n</style>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", width,
		height)
	for i, l := range s.lines {
		fmt.Fprintf(&b, "<text id=\"l%d\" class=\"%s\" x=\"%d\" y=\"%d\">%s</text>\n", i, l.kind, margin,
			margin+lineHeight*i+lineHeight*3/4, html.EscapeString(l.text))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
