package bugreport

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// HidePartitions removes the bounds of partitions.
func HidePartitions(all []admin.PartitionInfo) []admin.PartitionInfo {
	all = slices.Clone(all)
	for i := range all {
		p := &all[i]
		p.StartHidden, p.EndHidden = p.StartHidden || len(p.Start) > 0, p.EndHidden || len(p.End) > 0
		p.Start, p.End = nil, nil
	}
	return all
}

// HideKeyspaces removes the keys at which keyspaces are split, and keeps their number.
func HideKeyspaces(all []admin.KeyspaceInfo) []admin.KeyspaceInfo {
	all = slices.Clone(all)
	for i := range all {
		all[i].SplitAt = slices.Clone(all[i].SplitAt)
		for j := range all[i].SplitAt {
			all[i].SplitAt[j] = fmt.Appendf(nil, "split key %d", j)
		}
	}
	return all
}

// leftOut replaces a text that may contain keys.
const leftOut = "(left out)"

// HideOperators removes the keys at which operators split, and what operators wait for: an error of
// a node, which may contain keys without quotes.
func HideOperators(all []admin.OperatorInfo) []admin.OperatorInfo {
	all = slices.Clone(all)
	for i := range all {
		all[i].SplitAt, all[i].SplitAtHidden = nil, all[i].SplitAtHidden || len(all[i].SplitAt) > 0
		if all[i].WaitsFor != "" {
			all[i].WaitsFor = leftOut
		}
	}
	return all
}

// HideEvents removes the keys of splits.
func HideEvents(all []admin.Event) []admin.Event {
	all = slices.Clone(all)
	for i := range all {
		all[i].SplitAt, all[i].SplitAtHidden = nil, all[i].SplitAtHidden || len(all[i].SplitAt) > 0
	}
	return all
}

// quoted matches a quoted text. Keys of users are quoted in reasons and errors. The end of a reason
// may have cut a key.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"|\\?$)`)

// withoutQuoted returns a text without its quoted parts. Quoted commands are kept.
func withoutQuoted(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(text string) string {
		if strings.HasPrefix(text, `"tidemark `) {
			return text
		}
		return leftOut
	})
}

// HideQuoted returns the value as JSON, without the quoted parts of its texts. Quoted commands are
// kept.
func HideQuoted(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var tree any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	text, err = json.MarshalIndent(hideQuoted(tree), "", "  ")
	return append(text, '\n'), err
}

func hideQuoted(tree any) any {
	switch tree := tree.(type) {
	case string:
		return withoutQuoted(tree)
	case []any:
		for i := range tree {
			tree[i] = hideQuoted(tree[i])
		}
	case map[string]any:
		for name := range tree {
			tree[name] = hideQuoted(tree[name])
		}
	}
	return tree
}
