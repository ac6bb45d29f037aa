package prompt

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A long history is cut, and a line of put is kept without what was stored.
func TestTxnHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h := OpenHistory(path)
	for i := range 2*historyLines + 1 {
		h.Add(fmt.Sprintf("get fruit %d", i))
	}
	h = OpenHistory(path)
	if h.Len() != historyLines || h.At(0) != fmt.Sprintf("get fruit %d", 2*historyLines) {
		t.Errorf("%d lines, the newest is %q", h.Len(), h.At(0))
	}
	if text, err := os.ReadFile(path); err != nil ||
		strings.Count(string(text), "\n") != historyLines {
		t.Errorf("the file has %d lines: %v", strings.Count(string(text), "\n"), err)
	}
	for line, want := range map[string]string{
		"put fruit apple red":             "put fruit apple",
		"put 'my fruit' \"it's\" 'a b'":   `put 'my fruit' "it's"`,
		"  put fruit apple 'not closed":   "put",
		"get fruit apple":                 "get fruit apple",
		"put fruit apple red and more of": "put fruit apple",
	} {
		if got := withoutValue(line); got != want {
			t.Errorf("%s is kept as %s, want %s", line, got, want)
		}
	}
	for env, want := range map[string]string{"": "/h/.local/state/tidemark/history", "off": "",
		"/x": "/x"} {
		if got := HistoryFile("", func(name string) string {
			return map[string]string{"HOME": "/h", HistoryEnv: env}[name]
		}); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}
