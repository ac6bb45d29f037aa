package prompt

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"":                             nil,
		"  \t ":                        nil,
		"# put a b c":                  nil,
		"put fruit apple red":          {"put", "fruit", "apple", "red"},
		" put\tfruit  'an apple' \"\"": {"put", "fruit", "an apple", ""},
		`put a i't s'" x"`:             {"put", "a", "it s x"},
		`put a 'say "no"' "it's" b#c`:  {"put", "a", `say "no"`, "it's", "b#c"},
		`put a #1 \n`:                  {"put", "a", "#1", `\n`},
		`'#' a`:                        {"#", "a"},
	} {
		if got, err := SplitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"put 'a", `put "a'`, `get it's`} {
		if _, err := SplitWords(line); err == nil {
			t.Errorf("%q: want an error", line)
		}
	}
}

func TestReadingLines(t *testing.T) {
	read := func(in io.Reader) (texts []string, last Line) {
		for line := range ReadLines(t.Context(), in) {
			if last = line; line.Err == nil {
				texts = append(texts, line.Text)
			}
		}
		return texts, last
	}
	if texts, last := read(strings.NewReader("a\r\n\nb")); !slices.Equal(texts,
		[]string{"a", "", "b"}) || last.Number != 3 {
		t.Errorf("%q, %+v", texts, last)
	}
	long := io.MultiReader(strings.NewReader("a\n"),
		strings.NewReader(strings.Repeat("x", maxLine+1)))
	if texts, last := read(long); len(texts) != 1 || last.Number != 2 || last.Err == nil ||
		!strings.Contains(last.Err.Error(), "longer than") {
		t.Errorf("%q, %+v", texts, last)
	}
	broken := errors.New("broken")
	in, out := io.Pipe()
	out.CloseWithError(broken)
	if _, last := read(in); !errors.Is(last.Err, broken) {
		t.Errorf("%+v", last)
	}
	// A line that never comes does not hold up the end.
	in, out = io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for line := range ReadLines(ctx, in) {
		t.Errorf("%+v", line)
	}
}
