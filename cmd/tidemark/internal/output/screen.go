package output

import (
	"strings"
	"unicode"

	"github.com/jedib0t/go-pretty/v6/text"
)

// Screen describes where output goes, and how it is formatted.
type Screen struct {
	// Width is the terminal's number of columns. If it is 0, the output is no terminal, and nothing is
	// cut, wrapped or left out. A terminal of less than 20 columns counts as 20.
	Width int
	// Color turns on colours for words about health.
	Color bool
	// Headers makes tsv begin with a line of names.
	Headers bool
}

// UnknownWidth is the assumed width of a terminal that does not report it.
const UnknownWidth = 80

// narrowest is the smallest assumed width of a terminal.
const narrowest = 20

// columns returns the effective width.
func (s Screen) columns() int {
	if s.Width == 0 {
		return 0
	}
	return max(s.Width, narrowest)
}

// Tone is a word's meaning for health. On a terminal it has a colour.
type Tone int

// The tones.
const (
	Plainly Tone = iota
	Good
	Warning
	Bad
)

// Paint returns the text in the colour of a tone, if the screen has colours.
func (s Screen) Paint(tone Tone, plain string) string {
	if !s.Color || plain == "" {
		return plain
	}
	switch tone {
	case Good:
		return "\x1b[32m" + plain + "\x1b[0m"
	case Warning:
		return "\x1b[33m" + plain + "\x1b[0m"
	case Bad:
		return "\x1b[1;31m" + plain + "\x1b[0m"
	}
	return plain
}

// Text fits lines of text to the screen. Long lines are wrapped between words, and the continuation
// is indented like the words at the beginning of the line.
func (s Screen) Text(plain string) string {
	if s.Width == 0 {
		return plain
	}
	var b strings.Builder
	for line := range strings.Lines(plain) {
		line, end := strings.CutSuffix(line, "\n")
		words := strings.TrimLeft(line, " ")
		indent := min(len(line)-len(words), s.columns()/2)
		for i, part := range wrap(words, s.columns()-indent) {
			if i > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(strings.Repeat(" ", indent))
			b.WriteString(part)
		}
		if end {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// wrap divides a line into lines of a maximum number of columns, between words if possible. It
// returns at least one line.
func wrap(line string, columns int) []string {
	columns = max(columns, 2) // the widest characters have two columns
	var lines []string
	for text.StringWidth(line) > columns {
		end, fits, width := 0, 0, 0
		for i, r := range line {
			width += text.RuneWidth(r)
			if width > columns {
				if unicode.IsSpace(r) {
					end = i
				}
				break
			}
			fits = i + len(string(r))
			if unicode.IsSpace(r) {
				end = i
			}
		}
		if strings.TrimSpace(line[:end]) == "" {
			end = fits
		}
		lines = append(lines, strings.TrimRight(line[:end], " "))
		line = strings.TrimLeft(line[end:], " ")
	}
	return append(lines, line)
}

// Fit shortens a line to a number of columns, and reports whether it did. 0 columns mean no limit.
func Fit(line string, columns int) (string, bool) {
	if columns == 0 || len(line) <= columns || text.StringWidth(line) <= columns {
		return line, false
	}
	return text.Snip(line, columns, "…"), true
}
