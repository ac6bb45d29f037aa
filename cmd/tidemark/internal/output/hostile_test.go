package output

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"
)

// words is a text with which a server could act on a terminal: it clears the screen, sets the
// title, turns the direction of writing, and makes cells and lines of its own.
const words = "v1\x1b[2J\x1b]0;owned\a\u009b31m\u202e\r\n9\tforged\x7f\x00\xff"

// worded is a cell that is a text by its method.
type worded struct{}

func (worded) String() string { return words }

// What servers say of themselves acts on no terminal, in no format, wherever the output goes, and
// makes neither cells nor lines.
func TestWordsOfServersAreEscaped(t *testing.T) {
	for _, format := range []Format{Table, JSON, TSV, Raw} {
		var out bytes.Buffer
		l := NewList(&out, format, Column{Name: "id", Number: true}, Column{Name: "version"},
			Column{Name: "tags"}, Column{Name: "error"}, Column{Name: "shown"}, Column{Name: "stringer"}).
			On(Screen{Width: 1000, Headers: true})
		l.Row(1, words, []string{words, "ssd"}, errors.New(words).Error(),
			Cell{People: words, Programs: words}, worded{})
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if want := map[Format]int{Table: 2, JSON: 1, TSV: 2, Raw: 1}[format]; len(lines) != want {
			t.Errorf("%s: %d lines, want %d: %q", format, len(lines), want, lines)
		}
		last := lines[len(lines)-1]
		if cells := strings.Count(last, "\t") + 1; (format == TSV || format == Raw) && cells != 6 {
			t.Errorf("%s: %d cells, want 6: %q", format, cells, last)
		}
		for _, r := range strings.ReplaceAll(last, "\t", "") {
			if !unicode.IsPrint(r) {
				t.Errorf("%s: %q in %q", format, r, last)
			}
		}
	}
}

// Keys and values are as they are in raw.
func TestRawKeepsBytes(t *testing.T) {
	var out bytes.Buffer
	l := NewList(&out, Raw, Column{Name: "key"})
	l.Row([]byte(words))
	if err := l.Flush(); err != nil || out.String() != words+"\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	out.Reset()
	line := appendChange(nil, Raw, &Change{Timestamp: "1.0", Kind: "put", Key: []byte("a"),
		Value: []byte(words), HasValue: true, Expires: time.Time{}})
	if want := "1.0\tput\ta\t" + words + "\n"; string(line) != want {
		t.Errorf("%q, want %q", line, want)
	}
}

// PlainJSON keeps what JSON means, and lets nothing through that does not print.
func TestPlainJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Just(words)).Draw(t, "text")
		given, err := json.Marshal(map[string]string{"a": text})
		if err != nil {
			t.Fatal(err)
		}
		plain := PlainJSON(given)
		for _, r := range string(plain) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q in %q", r, plain)
			}
		}
		var before, after map[string]string
		if err := errors.Join(json.Unmarshal(given, &before), json.Unmarshal(plain, &after)); err != nil {
			t.Fatal(err)
		}
		if before["a"] != after["a"] {
			t.Fatalf("%q became %q", before["a"], after["a"])
		}
	})
	got := string(PlainJSON([]byte("{\n\t\"a\": \"\x9b\u009b\"}")))
	if want := "{\n\t\"a\": \"\\ufffd\\u009b\"}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
