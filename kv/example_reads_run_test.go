package kv_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// The Go code of the document on reads is that of the examples.
func TestTheDocumentOnReadsShowsTheExamples(t *testing.T) {
	document, err := os.ReadFile("../docs/reads.md")
	if err != nil {
		t.Fatal(err)
	}
	examples, err := os.ReadFile("example_reads_test.go")
	if err != nil {
		t.Fatal(err)
	}
	compiled := trimmed(string(examples))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) < 5 {
		t.Errorf("the document has %d blocks of code, want one for each way to read", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(compiled, trimmed(block[1])) {
			t.Errorf("this is in no example:\n%s", block[1])
		}
	}
}

// They do what they say, on real servers.
func TestExamplesOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond}).Client(t)
		fruit, err := client.CreateKeyspace(ctx, "fruit", kv.Hash(2))
		if err != nil {
			t.Fatal(err)
		}
		example.ctx, example.client, example.fruit = ctx, client, fruit
		ExampleReadYourWrites()
		ExampleLinearizableFollower()
		time.Sleep(5 * time.Second) // virtual: it is closed
		ExampleNearest()
		ExampleMaxStaleness()
		ExampleAnyStaleness()
		ExampleClient_View_replicas()
	})
}
