package engine

import (
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Explain is an error of the engine in words for people: what is damaged is named by its file, and
// what Pebble adds for programs is left out. It is one line.
func Explain(err error) string {
	if err == nil {
		return ""
	}
	var lines []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line == "" || line == "<corruption detail carrier>" {
			continue
		}
		// Errors that were joined say the same thing more than once.
		if len(lines) > 0 && strings.HasSuffix(lines[len(lines)-1], line) {
			continue
		}
		lines = append(lines, line)
	}
	text := strings.Join(lines, "; ")
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil &&
		!strings.Contains(text, info.Path) {
		text += " (the damaged file is " + info.Path + ")"
	}
	return text
}
