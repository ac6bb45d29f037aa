package planted

import (
	"fmt"
	"strings"
)

// filePatch is the part of a patch that changes one file.
type filePatch struct {
	// name is relative to the root of the module, with slashes.
	name  string
	hunks []hunk
}

// hunk replaces lines, with their context. Both texts end with a newline.
type hunk struct {
	before, after string
}

// parseDiff parses a unified diff. It ignores line numbers.
func parseDiff(text string) ([]filePatch, error) {
	var files []filePatch
	var file *filePatch
	var h *hunk
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") {
			line += "\n"
		}
		switch {
		case strings.HasPrefix(line, "--- a/"):
			files = append(files, filePatch{name: strings.TrimSpace(strings.TrimPrefix(line,
				"--- a/"))})
			file, h = &files[len(files)-1], nil
		case strings.HasPrefix(line, "+++ b/") && h == nil:
		case strings.HasPrefix(line, "@@"):
			file.hunks = append(file.hunks, hunk{})
			h = &file.hunks[len(file.hunks)-1]
		case h == nil:
			return nil, fmt.Errorf("a line of the diff belongs to no hunk: %q", line)
		case line[0] == ' ' || line == "\n":
			rest := strings.TrimPrefix(line, " ")
			h.before, h.after = h.before+rest, h.after+rest
		case line[0] == '-':
			h.before += line[1:]
		case line[0] == '+':
			h.after += line[1:]
		default:
			return nil, fmt.Errorf("a line of the diff is neither context nor a change: %q", line)
		}
	}
	for _, f := range files {
		if len(f.hunks) == 0 {
			return nil, fmt.Errorf("%s: the diff has no hunk", f.name)
		}
	}
	return files, nil
}

// apply changes the text of a file. The lines of every hunk must occur in the text exactly once.
func (f filePatch) apply(text string) (string, error) {
	text = "\n" + text
	for i, h := range f.hunks {
		before, after := "\n"+h.before, "\n"+h.after
		at := strings.Index(text, before)
		if at < 0 || strings.Contains(text[at+1:], before) {
			return "", fmt.Errorf("%s: the lines of hunk %d do not stand in it just once; make "+
				"the patch anew:\n%s", f.name, i+1, h.before)
		}
		text = text[:at] + after + text[at+len(before):]
	}
	return text[1:], nil
}
