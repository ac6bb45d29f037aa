package restores

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemarkdb/tidemark/kv"
)

// A report lists every difference between a copy and its source, and lists none for equal rows.
func TestDifferences(t *testing.T) {
	now := time.Unix(1000, 0)
	row := func(key, value string, expires time.Time) kv.Pair {
		return kv.Pair{Key: []byte(key), Value: []byte(value), Expires: expires}
	}
	source := []kv.Pair{row("a", "1", time.Time{}), row("b", "2", now.Add(time.Hour)),
		row("c", "3", now.Add(-time.Second)), row("d", "4", time.Time{})}
	for name, test := range map[string]struct {
		change func([]kv.Pair) []kv.Pair
		want   int
	}{
		"the same":       {func(p []kv.Pair) []kv.Pair { return p }, 0},
		"an expired row": {func(p []kv.Pair) []kv.Pair { return slices.Delete(p, 2, 3) }, 0},
		"a row less":     {func(p []kv.Pair) []kv.Pair { return slices.Delete(p, 0, 1) }, 1},
		"the last row":   {func(p []kv.Pair) []kv.Pair { return p[:3] }, 1},
		"nothing":        {func([]kv.Pair) []kv.Pair { return nil }, 3},
		"a row more": {func(p []kv.Pair) []kv.Pair {
			return append(p, row("e", "5", time.Time{}))
		}, 1},
		"another key": {func(p []kv.Pair) []kv.Pair {
			p[0].Key = []byte("aa")
			return p
		}, 2},
		"another value": {func(p []kv.Pair) []kv.Pair {
			p[3].Value = []byte("5")
			return p
		}, 1},
		"no expiry": {func(p []kv.Pair) []kv.Pair {
			p[1].Expires = time.Time{}
			return p
		}, 1},
	} {
		if all := differences(source, test.change(slices.Clone(source)), now); len(all) != test.want {
			t.Errorf("%s: %q", name, all)
		}
	}
}

// A report lists every difference between the keys of two coordination stores.
func TestDifferentKeys(t *testing.T) {
	key := func(key string, modified int64) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v"), ModRevision: modified}
	}
	want := []*mvccpb.KeyValue{key("a", 1), key("b", 2)}
	if why := differentKeys(want, []*mvccpb.KeyValue{key("a", 1), key("b", 2)}); why != "" {
		t.Error(why)
	}
	for _, got := range [][]*mvccpb.KeyValue{nil, want[:1], want[1:], {key("a", 1), key("b", 3)},
		append(slices.Clone(want), key("c", 3))} {
		if differentKeys(want, got) == "" {
			t.Errorf("%v passes for %v", got, want)
		}
	}
}
