package keys

import "testing"

func TestHiddenNames(t *testing.T) {
	hidden := HiddenName("20260131T120000Z-1a2b3c4d", "fruit")
	restore, name, ok := SplitHiddenName(hidden)
	if !IsHidden(hidden) || !ok || restore != "20260131T120000Z-1a2b3c4d" || name != "fruit" {
		t.Error(hidden, restore, name, ok)
	}
	for _, other := range []string{"fruit", "restore", "restore-fruit", ""} {
		if _, _, ok := SplitHiddenName(other); ok || IsHidden(other) {
			t.Errorf("%q is hidden", other)
		}
	}
	if _, _, ok := SplitHiddenName("restore/fruit"); ok {
		t.Error("a name without a restore is split")
	}
}
