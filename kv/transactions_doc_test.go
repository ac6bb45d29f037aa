package kv_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// trimmed is text without the blanks around its lines.
func trimmed(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return b.String()
}

// The Go code of the documents on transactions, and what the README has of them, is that of the
// examples, which are compiled and run.
func TestTheDocumentShowsTheExamples(t *testing.T) {
	var document []byte
	for _, name := range []string{"../docs/transactions.md", "../docs/transactions-reference.md"} {
		one, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		document = append(document, one...)
	}
	examples, err := os.ReadFile("example_txn_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := trimmed(string(examples))
	code := regexp.MustCompile("(?s)```go\n(.*?)```")
	blocks := code.FindAllStringSubmatch(string(document), -1)
	if len(blocks) < 5 {
		t.Errorf("the documents have %d blocks of code, want one for each way to run a transaction",
			len(blocks))
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile("(?s)\n### Transactions\n(.*?)\n### ").FindStringSubmatch(
		string(readme))
	if section == nil {
		t.Fatal("the README has no section on transactions")
	}
	short := code.FindAllStringSubmatch(section[1], -1)
	if len(short) == 0 {
		t.Error("the README has no code of a transaction")
	}
	for _, block := range append(blocks, short...) {
		if !strings.Contains(compiled, trimmed(block[1])) {
			t.Errorf("this is in no example:\n%s", block[1])
		}
	}
}

// The document says of every error of transactions what to do.
func TestTheDocumentHasEveryError(t *testing.T) {
	document, err := os.ReadFile("../docs/transactions.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	// What transactions do not meet.
	others := map[string]bool{"ErrKeyspaceExists": true, "ErrCrossPartition": true,
		"ErrWrongCluster": true, "ErrConsumerNotFound": true}
	names := regexp.MustCompile(`(?m)^\t(Err\w+) +ErrorKind = `).FindAllStringSubmatch(
		string(source), -1)
	if len(names) < 15 {
		t.Fatalf("errors.go declares %d errors", len(names))
	}
	for _, name := range names {
		if !others[name[1]] && !strings.Contains(string(document), "`"+name[1]+"`") {
			t.Errorf("%s is missing", name[1])
		}
	}
}
