package engine

import (
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// Explain returns an error of the engine as one line for operators: it names the damaged file, and
// omits Pebble's details for programs.
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
		// Joined errors may repeat the same text.
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
