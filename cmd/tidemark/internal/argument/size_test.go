package argument

import "testing"

func TestSizes(t *testing.T) {
	for text, want := range map[string]struct {
		bytes Size
		back  string
	}{
		"0": {0, ""}, "1024": {1024, "1KiB"}, "1000": {1000, "1000B"},
		"1.5MiB": {3 << 19, "1536KiB"}, "64MiB": {64 << 20, "64MiB"},
		"2GB": {2e9, "1953125KiB"}, "1 TiB": {1 << 40, "1TiB"}, "7B": {7, "7B"},
	} {
		var s Size
		if err := s.Set(text); err != nil || s != want.bytes || s.String() != want.back {
			t.Errorf("%s: %d, %s, %v", text, uint64(s), s.String(), err)
		}
	}
	for _, text := range []string{"", "-1", "MiB", "1XB", "NaN", "1e40", "one"} {
		var s Size
		if err := s.Set(text); err == nil {
			t.Errorf("%q: want an error, got %d", text, uint64(s))
		}
	}
}
