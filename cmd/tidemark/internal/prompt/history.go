package prompt

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
)

const (
	HistoryEnv = "TIDEMARK_HISTORY"
	// historyOff is the value in place of the file's name that turns the history off.
	historyOff = "off"
	// historyLines is the number of lines that are kept. The file is shortened when it has twice as
	// many.
	historyLines = 1000
)

// History holds the lines of the prompt, the newest last, and stores them in a file for the next
// session. Values are not written to the file, so that stored data does not end up in home
// directories: of a put, the file has the keyspace and the key. A line that begins with a blank is
// not stored.
type History struct {
	path  string
	lines []string
}

// HistoryFile returns the path of the history. It is empty if no history is kept.
func HistoryFile(flag string, getenv func(string) string) string {
	path := flag
	if path == "" {
		path = getenv(HistoryEnv)
	}
	switch path {
	case historyOff:
		return ""
	case "":
		state := getenv("XDG_STATE_HOME")
		if home := getenv("HOME"); state == "" && home != "" {
			state = filepath.Join(home, ".local", "state")
		}
		if state == "" {
			return ""
		}
		return filepath.Join(state, "tidemark", "history")
	}
	return path
}

// OpenHistory reads the file. If the file does not exist or cannot be read, the history is empty.
func OpenHistory(path string) *History {
	h := &History{path: path}
	if path == "" {
		return h
	}
	file, err := os.Open(path)
	if err != nil {
		return h
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	count := 0
	for scanner.Scan() {
		count++
		h.lines = append(h.lines, scanner.Text())
		h.lines = h.lines[max(0, len(h.lines)-historyLines):]
	}
	if count >= 2*historyLines {
		h.rewrite()
	}
	return h
}

// rewrite shortens the file. If that fails, the former file stays.
func (h *History) rewrite() {
	short := h.path + ".new"
	if os.WriteFile(short, []byte(strings.Join(h.lines, "\n")+"\n"), 0o600) == nil {
		_ = os.Rename(short, h.path)
	}
}

// Add implements term.History. If a line cannot be written, it is lost, and the session continues.
func (h *History) Add(line string) {
	if strings.TrimSpace(line) == "" || line[0] == ' ' ||
		(len(h.lines) > 0 && h.lines[len(h.lines)-1] == line) {
		return
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-historyLines):]
	if h.path == "" || os.MkdirAll(filepath.Dir(h.path), 0o700) != nil {
		return
	}
	file, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = file.WriteString(withoutValue(line) + "\n")
	_ = file.Close()
}

// withoutValue returns a line in the form for the file. Of a line that cannot be parsed only the
// first word is kept, because the rest may contain a value.
func withoutValue(line string) string {
	words, err := SplitWords(line)
	if err != nil {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		return name
	}
	if len(words) > 3 && words[0] == "put" {
		return strings.Join(quoted(words[:3]), " ")
	}
	return line
}

// quoted formats words as SplitWords parses them.
func quoted(words []string) []string {
	out := make([]string, len(words))
	for i, word := range words {
		switch {
		case word != "" && !strings.ContainsAny(word, " \t'\"#"):
			out[i] = word
		case !strings.Contains(word, "'"):
			out[i] = "'" + word + "'"
		default:
			// A word with quotes of both kinds cannot be written in one piece.
			out[i] = `"` + word + `"`
		}
	}
	return out
}

// Len implements term.History.
func (h *History) Len() int { return len(h.lines) }

// At implements term.History: 0 is the newest.
func (h *History) At(i int) string { return h.lines[len(h.lines)-1-i] }
