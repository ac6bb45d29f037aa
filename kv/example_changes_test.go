package kv_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// indexed keeps an index of a keyspace, and saves it at each progress.
func indexed(ctx context.Context, ks *kv.Keyspace, index map[string]string,
	save func(map[string]string, kv.Timestamp) error) error {
	// A copy of the keyspace as of one moment.
	var read kv.ReadInfo
	for pair, err := range ks.Scan(ctx, kv.ReadAt(&read)) {
		if err != nil {
			return err
		}
		index[string(pair.Key)] = string(pair.Value)
	}

	// And all that was written after it.
	for change, err := range ks.Changes(ctx, kv.Since(read.At)) {
		if err != nil {
			return err
		}
		switch change.Kind {
		case kv.ChangePut:
			index[string(change.Key)] = string(change.Value)
		case kv.ChangeDelete:
			delete(index, string(change.Key))
		case kv.ChangeProgress:
			// Everything at or below this timestamp has come: here is where to go on.
			if err := save(index, change.Timestamp); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestTheExampleOfChanges: the example does what it says, and the document shows it.
func TestTheExampleOfChanges(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		for _, key := range []string{"a", "b"} {
			if _, err := ks.Put(ctx, []byte(key), []byte("1")); err != nil {
				t.Fatal(err)
			}
		}
		var last kv.Timestamp
		enough := errors.New("enough")
		index := map[string]string{}
		err := indexed(ctx, ks, index, func(index map[string]string, at kv.Timestamp) error {
			switch {
			case last.IsZero():
				if _, err := ks.Put(ctx, []byte("c"), []byte("2")); err != nil {
					return err
				}
				if _, err := ks.Delete(ctx, []byte("a")); err != nil {
					return err
				}
				last = client.Timestamp()
			case last.LessEq(at):
				return enough
			}
			return nil
		})
		if want := map[string]string{"b": "1", "c": "2"}; !errors.Is(err, enough) ||
			!maps.Equal(index, want) {
			t.Errorf("the index is %v: %v", index, err)
		}
	}, kv.Hash(2))
	document, err := os.ReadFile("../docs/changes.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_changes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) == 0 {
		t.Error("the document has no code")
	}
	for _, block := range blocks {
		if !strings.Contains(trimmed(string(example)), trimmed(block[1])) {
			t.Errorf("this is not in the example:\n%s", block[1])
		}
	}
}
