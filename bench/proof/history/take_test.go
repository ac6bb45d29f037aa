package history

import (
	"slices"
	"strings"
	"testing"
)

func TestTakeForgetsWhatItTakes(t *testing.T) {
	r := NewRecorder()
	for _, key := range []string{"old/1", "new/1", "old/2"} {
		r.Begin(Operation{Key: key, Kind: Put, New: a}).Put()
	}
	pending := r.Begin(Operation{Key: "new/2"})
	keysOf := func(operations []Operation) (keys []string) {
		for _, o := range operations {
			keys = append(keys, o.Key)
		}
		return keys
	}
	taken := r.Take(func(key string) bool { return strings.HasPrefix(key, "old/") })
	if got := keysOf(taken); !slices.Equal(got, []string{"old/1", "old/2"}) {
		t.Errorf("took %v", got)
	}
	pending.Got(Absent)
	r.Begin(Operation{Key: "new/1"}).Got(a)
	left := r.Operations()
	if got := keysOf(left); !slices.Equal(got, []string{"new/1", "new/2", "new/1"}) ||
		r.Len() != 3 {
		t.Errorf("left are %v", got)
	}
	if err := Check(left, patience).Err(); err != nil {
		t.Error(err)
	}
	if again := r.Take(func(key string) bool { return strings.HasPrefix(key, "old/") }); len(
		again) != 0 {
		t.Errorf("took %v again", again)
	}
}
