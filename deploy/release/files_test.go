package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The bytes of an archive depend on its files and on its time only.
func TestArchive(t *testing.T) {
	when := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	files := map[string][]byte{"tidemark": []byte("program"), "man/man1/a.1": []byte("page"),
		"completions/bash/tidemark": []byte("completion"), "README.md": nil}
	write := func() []byte {
		var out bytes.Buffer
		if err := writeTar(&out, "tidemark_0.1.0", files, when); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	first := write()
	for range 10 { // the order of a map changes
		if !bytes.Equal(first, write()) {
			t.Fatal("the same files give other bytes")
		}
	}
	plain, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil || !plain.ModTime.IsZero() || plain.Name != "" {
		t.Fatalf("%+v, %v", plain, err)
	}
	var got []string
	for archive := tar.NewReader(plain); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(when) || h.Uid != 0 || h.Gid != 0 || h.Uname != "root" {
			t.Errorf("%+v", h)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%o %s %s", h.Mode, h.Name, content))
	}
	want := []string{
		"755 tidemark_0.1.0/ ",
		"644 tidemark_0.1.0/README.md ",
		"755 tidemark_0.1.0/completions/ ",
		"755 tidemark_0.1.0/completions/bash/ ",
		"644 tidemark_0.1.0/completions/bash/tidemark completion",
		"755 tidemark_0.1.0/man/ ",
		"755 tidemark_0.1.0/man/man1/ ",
		"644 tidemark_0.1.0/man/man1/a.1 page",
		"755 tidemark_0.1.0/tidemark program",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the archive has\n%s", strings.Join(got, "\n"))
	}
}

func TestChecksums(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "b"), "")
	writeFile(t, filepath.Join(dir, "a"), "abc")
	if err := writeChecksums(dir); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, checksumFile))
	want := "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a\n" +
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b\n"
	if err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// The recipe of the image takes the arguments of a release.
func TestFillRecipe(t *testing.T) {
	recipe, err := os.ReadFile(filepath.Join("../..", recipeFile))
	if err != nil {
		t.Fatal(err)
	}
	arguments := map[string]string{"GO_VERSION": "1.99.1", "VERSION": "v0.1.0",
		"REVISION": "1a2b3c4d", "CREATED": "2026-12-01T12:00:00Z"}
	filled, err := fillRecipe(string(recipe), arguments)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range arguments {
		if strings.Contains(filled, "ARG "+name+"=\n") ||
			!strings.Contains(filled, "\nARG "+name+"="+value+"\n") {
			t.Errorf("%s is not set", name)
		}
	}
	if strings.Count(filled, "\n") != strings.Count(string(recipe), "\n") {
		t.Error("the recipe has other lines")
	}
	if _, err := fillRecipe("FROM scratch\nARG VERSION\n",
		map[string]string{"VERSION": "1"}); err == nil {
		t.Error("an argument without a default is set")
	}
}
