package coord_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The Go code of the document on coordination is that of the examples, which are compiled and run.
func TestTheDocumentShowsTheExamples(t *testing.T) {
	trimmed := func(text []byte) string {
		var b strings.Builder
		for line := range strings.Lines(string(text)) {
			b.WriteString(strings.TrimSpace(line) + "\n")
		}
		return b.String()
	}
	document, err := os.ReadFile("../../docs/coordination.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := trimmed(examples)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(document, -1)
	if len(blocks) < 3 {
		t.Errorf("the document has %d blocks of code", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(compiled, trimmed(block[1])) {
			t.Errorf("no example has this code:\n%s", block[1])
		}
	}
}
