package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReportsAreAppended(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.md")
	if err := os.WriteFile(path, []byte("# Beside etcd\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, heading := range []string{"first", "second"} {
		if err := AppendReport(path, heading, "\nfigures of the "+heading+" run\n\n"); err != nil {
			t.Fatal(err)
		}
	}
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = "# Beside etcd\n" +
		"\n## first\n\nfigures of the first run\n" +
		"\n## second\n\nfigures of the second run\n"
	if string(page) != want {
		t.Errorf("the page is\n%s\nand not\n%s", page, want)
	}
	missing := filepath.Join(t.TempDir(), "missing", "etcd.md")
	err = AppendReport(missing, "third", "")
	if err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a page that cannot be written: %v", err)
	}
}
