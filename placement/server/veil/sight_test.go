package veil

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// In sentences and in JSON a key is hidden however it is written: with quotes, backslashes and
// bytes that do not print in it, and cut.
func TestSentencesWithoutKeys(t *testing.T) {
	for _, key := range []string{"m", "", `a"b`, `a\`, "a\x00\xff\n", strings.Repeat("k\"\\", 100)} {
		text := "to be split, 48 % left and 50 % right of " + keys.Pretty([]byte(key)) + "; waits: 40s"
		want := "to be split, 48 % left and 50 % right of (hidden); waits: 40s"
		if got := WithoutKeys(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
	encoded, err := WithoutKeysJSON([]byte(`{"Partition":{"Bytes":12345678901234567890,` +
		`"HotKey":"m","ByLoad":{"Key":"m","Left":480},"Verdict":"right of \"m\\\"\""},` +
		`"events":[{"split_at":"bQ=="}]}`))
	want := `{"Partition":{"ByLoad":{"Left":480},"Bytes":12345678901234567890,` +
		`"Verdict":"right of (hidden)"},"events":[{}]}`
	if err != nil || string(encoded) != want {
		t.Errorf("%v: %s, want %s", err, encoded, want)
	}
}

// What has lost its bounds is a partition like others to clients, which check it.
func TestHiddenBoundsMakeSense(t *testing.T) {
	prefix := []byte{0, 0, 0, 7}
	p := &clusterpb.Partition{Id: 1, Keyspace: 7, PrefixLength: 4,
		Start: append(bytes.Clone(prefix), 'a'), End: append(bytes.Clone(prefix), 'b')}
	info := &clusterpb.PartitionInfo{Partition: p}
	SightOf(context.Background()).Partition(info)
	if info.StartHidden || info.EndHidden || string(keys.PartitionUserSpan(p).Start) != "a" {
		t.Errorf("without users: %v", info)
	}
	SightOf(WithSight(context.Background(), Blind{})).Partition(info)
	if span := keys.PartitionUserSpan(p); !info.StartHidden || !info.EndHidden ||
		len(span.Start) > 0 || len(span.End) > 0 {
		t.Errorf("%v", info)
	}
}

// A sentence that was cut within a key shows no part of the key.
func TestCutSentencesWithoutKeys(t *testing.T) {
	for text, want := range map[string]string{
		`splits at "a" and merges below "secr`: `splits at (hidden) and merges below (hidden)`,
		`splits at "secret\`:                   `splits at (hidden)`,
		`splits at "secret\"`:                  `splits at (hidden)`,
	} {
		if got := WithoutKeys(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// What an operator waits for can be an error of a node, in which keys may have no quotes.
func TestErrorsOfOperatorsAreHidden(t *testing.T) {
	o := &clusterpb.OperatorInfo{Reason: `at "secret"`, WaitsFor: "data at secret cannot be read"}
	sight{Blind{}}.Operator(7, o)
	if strings.Contains(o.String(), "secret") || o.WaitsFor == "" {
		t.Errorf("shown: %v", o)
	}
}
