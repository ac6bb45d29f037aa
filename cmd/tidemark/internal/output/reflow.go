package output

import (
	"regexp"
	"strings"
)

// labelled matches the beginning of a list entry: a label, and blanks before its text.
var labelled = regexp.MustCompile(`^ *\S+ {2,}`)

// Reflow wraps text that was written for wider lines: the lines of each paragraph and of each list
// entry are joined and wrapped again. Other indented lines are kept.
func (s Screen) Reflow(written string) string {
	if s.Width == 0 {
		return written
	}
	var b strings.Builder
	var words []string
	first, rest := "", ""
	end := func() {
		if len(words) == 0 {
			return
		}
		for i, line := range wrap(strings.Join(words, " "), s.columns()-len(rest)) {
			indent := rest
			if i == 0 {
				indent = first
			}
			b.WriteString(indent + line + "\n")
		}
		words = nil
	}
	for line := range strings.Lines(written) {
		line = strings.TrimRight(line, "\n")
		label := labelled.FindString(line)
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch {
		case strings.TrimSpace(line) == "":
			end()
			b.WriteByte('\n')
			continue
		case strings.HasPrefix(line, " ") && label != "":
			end()
			first, rest = label, strings.Repeat(" ", len(label))
			line = line[len(label):]
		case len(words) > 0 && indent == len(rest): // the paragraph continues
		default:
			end()
			first = line[:indent]
			rest = first
		}
		words = append(words, strings.TrimSpace(line))
		if indent > 0 && rest == first {
			end()
		}
	}
	end()
	if !strings.HasSuffix(written, "\n") {
		return strings.TrimSuffix(b.String(), "\n")
	}
	return b.String()
}
