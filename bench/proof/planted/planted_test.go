package planted

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// Every patch applies to the present product, and the result is valid Go.
func TestPatchesApply(t *testing.T) {
	all, err := All()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 32 {
		t.Fatalf("%d mistakes, there were 32", len(all))
	}
	for _, b := range all {
		if pkg, test, named := strings.Cut(b.Test, " "); named && !hasTest(t, pkg, test) {
			t.Errorf("%s names %s of %s, which is no test there", b.Name, test, pkg)
		}
		path, err := b.Overlay(root, t.TempDir())
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var overlay struct{ Replace map[string]string }
		if err := json.Unmarshal(text, &overlay); err != nil {
			t.Fatal(err)
		}
		for file, copied := range overlay.Replace {
			was, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			is, err := os.ReadFile(copied)
			if err != nil {
				t.Fatal(err)
			}
			if string(was) == string(is) {
				t.Errorf("%s leaves %s as it is", b.Name, file)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), copied, is,
				parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", b.Name, err)
			}
		}
	}
	if Active != "" {
		t.Errorf("this build carries %s", Active)
	}
	if _, err := Find("none"); err == nil {
		t.Error("a mistake that there is not was found")
	}
}

// hasTest says whether a package, such as ./kv, has a test of that name.
func hasTest(t *testing.T, pkg, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), "\nfunc "+name+"(")
	})
}

// A patch whose lines do not occur in the text is refused.
func TestApply(t *testing.T) {
	const head = "It is wrong.\n--- a/x.go\n+++ b/x.go\n"
	for _, c := range []struct{ patch, text, want, err string }{
		{head + "@@ -1,2 +1,2 @@\n one\n-two\n+three\n", "zero\none\ntwo\nfour\n",
			"zero\none\nthree\nfour\n", ""},
		{head + "@@\n one\n-two\n+three\n", "one\ntwo\n", "one\nthree\n", ""},
		{head + "@@\n one\n-two\n", "one\ntwelve\ntwo\n", "", "just once"},
		{head + "@@\n-two\n", "two\ntwo\n", "", "just once"},
		{head + "@@\n+two\n@@\n*\n", "two\n", "", "neither"},
		{head, "", "", "no hunk"},
		{head + " two\n", "", "", "no hunk"},
		{"--- a/x.go\n@@\n-two\n", "", "", "no sentence"},
		{"It is wrong.\n", "", "", "no diff"},
	} {
		var got string
		b, err := parse("x", c.patch)
		if err == nil {
			got, err = b.files[0].apply(c.text)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(),
			c.err)) || got != c.want {
			t.Errorf("%q: %q, %v; want %q, %q", c.patch, got, err, c.want, c.err)
		}
	}
}
