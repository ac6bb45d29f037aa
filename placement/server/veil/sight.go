package veil

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Sight says which keys of users a caller may see: the keys that the caller may read or write. Keys
// occur in lists, as boundaries of partitions and spans of consumers, and in sentences of the
// planner about splits.
type Sight interface {
	// Key reports whether the caller may see a key of a keyspace.
	Key(keyspace keys.KeyspaceID, key []byte) bool
	// Span reports whether the caller may see all keys of a keyspace from start on and below end. An
	// empty end means no bound.
	Span(keyspace keys.KeyspaceID, start, end []byte) bool
}

type sightKey struct{}

// WithSight returns the context of a call whose caller may see the keys that a Sight permits. In
// any other context all keys are shown.
func WithSight(ctx context.Context, s Sight) context.Context {
	return context.WithValue(ctx, sightKey{}, s)
}

// Blind is the Sight of a caller who may see no key.
type Blind struct{}

// Key implements Sight.
func (Blind) Key(keys.KeyspaceID, []byte) bool { return false }

// Span implements Sight.
func (Blind) Span(keys.KeyspaceID, []byte, []byte) bool { return false }

// sight is the Sight of a call. Without a Sight everything may be shown.
type sight struct{ of Sight }

func SightOf(ctx context.Context) sight {
	s, _ := ctx.Value(sightKey{}).(Sight)
	return sight{s}
}

// key reports whether a key may be shown. The keyspace id 0 stands for a keyspace that is gone.
func (s sight) key(keyspace keys.KeyspaceID, key []byte) bool {
	return s.of == nil || len(key) == 0 || keyspace != 0 && s.of.Key(keyspace, key)
}

// All reports whether all keys of a keyspace may be shown.
func (s sight) All(keyspace keys.KeyspaceID) bool {
	return s.of == nil || keyspace != 0 && s.of.Span(keyspace, nil, nil)
}

// Partition removes the bounds that may not be shown.
func (s sight) Partition(info *clusterpb.PartitionInfo) {
	p := info.Partition
	id, span := keys.KeyspaceID(p.Keyspace), keys.PartitionUserSpan(p)
	if s.All(id) {
		return
	}
	if !s.key(id, span.Start) {
		info.StartHidden, p.Start = true, bytes.Clone(keys.PartitionPrefix(p))
	}
	if !s.key(id, span.End) {
		info.EndHidden, p.End = true, keys.PrefixEnd(keys.PartitionPrefix(p))
	}
}

// Operator removes the keys that may not be shown.
func (s sight) Operator(keyspace keys.KeyspaceID, o *clusterpb.OperatorInfo) {
	if s.All(keyspace) {
		return
	}
	if !s.key(keyspace, o.SplitAt) {
		o.SplitAtHidden, o.SplitAt = true, nil
	}
	for _, text := range []*string{&o.Reason, &o.Step, &o.ScoreBefore, &o.ScoreAfter, &o.Rejected} {
		*text = WithoutKeys(*text)
	}
	if o.WaitsFor != "" {
		o.WaitsFor = "(hidden)" // an error of a node, which may contain keys without quotes
	}
}

// Event removes the keys that may not be shown.
func (s sight) Event(e *clusterpb.Event) {
	keyspace := keys.KeyspaceID(e.KeyspaceId)
	if s.All(keyspace) {
		return
	}
	if !s.key(keyspace, e.SplitAt) {
		e.SplitAtHidden, e.SplitAt = true, nil
	}
	for _, text := range []*string{&e.Reason, &e.Outcome, &e.ScoreBefore, &e.ScoreAfter,
		&e.Rejected} {
		*text = WithoutKeys(*text)
	}
}

// Consumer removes the span if it may not be shown.
func (s sight) Consumer(c *clusterpb.Consumer) {
	id, span := keys.KeyspaceID(c.KeyspaceId), c.GetSpan()
	if span != nil && !s.All(id) && (id == 0 || !s.of.Span(id, span.Start, span.End)) {
		c.SpanHidden, c.Span = true, nil
	}
}

// quoted matches a key in a sentence, as keys.Pretty writes it. Some names and placement rules are
// quoted as well. The end of the sentence may have cut a key.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*(?:"(?:\.\.\. \(\d+ bytes\))?|\\?$)`)

// WithoutKeys hides the quoted parts of a sentence.
func WithoutKeys(text string) string { return quoted.ReplaceAllLiteralString(text, "(hidden)") }

// WithoutKeysJSON removes the keys from an explanation.
func WithoutKeysJSON(encoded []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(hidden(value))
}

// keyFields are the fields of an explanation that contain keys.
var keyFields = map[string]bool{"Key": true, "HotKey": true, "split_at": true}

func hidden(value any) any {
	switch v := value.(type) {
	case string:
		return WithoutKeys(v)
	case []any:
		for i := range v {
			v[i] = hidden(v[i])
		}
	case map[string]any:
		for name, field := range v {
			if keyFields[name] {
				delete(v, name)
			} else {
				v[name] = hidden(field)
			}
		}
	}
	return value
}
