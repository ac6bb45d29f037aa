package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// Every command that is shown has a manual page, and every flag of it stands there.
func TestEveryCommandHasAManPage(t *testing.T) {
	dir := t.TempDir()
	if got := command(t, "", nil, "man", "--dir", dir); got.code != exit.OK {
		t.Fatalf("%+v", got)
	}
	root := (&app{}).root()
	root.InitDefaultCompletionCmd()
	pages := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		path := filepath.Join(dir, "man", strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1")
		if cmd.Hidden {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s is hidden and has a page", cmd.CommandPath())
			}
			return
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
			return
		}
		pages++
		typed := strings.NewReplacer(`\-`, "-", `\(aq`, "'").Replace(string(text))
		if !strings.Contains(typed, cmd.Short) {
			t.Errorf("%s does not say: %s", path, cmd.Short)
		}
		cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
			if shown := strings.Contains(typed, `\fB--`+flag.Name+`\fR`); shown == flag.Hidden {
				t.Errorf("%s: --%s stands there: %t", path, flag.Name, shown)
			}
		})
	}
	look(root)
	if pages < 30 {
		t.Errorf("%d pages", pages)
	}
	files, err := filepath.Glob(filepath.Join(dir, "man", "*.1"))
	if err != nil || len(files) < pages {
		t.Errorf("%d files of %d pages: %v", len(files), pages, err)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		return
	}
	out, err := exec.Command("groff", append([]string{"-man", "-ww", "-z", "-Tutf8"},
		files...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}

// The completions that are written are the shells' own: where the shell is there, it reads them.
func TestCompletionsAreWritten(t *testing.T) {
	dir := t.TempDir()
	if got := command(t, "", nil, "man", "--dir", dir, "-o", "json"); got.code != exit.OK ||
		!strings.Contains(got.out, "completions/bash/tidemark") {
		t.Fatalf("%+v", got)
	}
	for shell, file := range map[string]string{"bash": "tidemark", "zsh": "_tidemark",
		"fish": "tidemark.fish"} {
		path := filepath.Join(dir, "completions", shell, file)
		info, err := os.Stat(path)
		if err != nil || info.Size() < 1000 || info.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		if out, err := exec.Command(shell, "-n", path).CombinedOutput(); err != nil {
			t.Errorf("%s -n: %v\n%s", shell, err, out)
		}
	}
	if got := command(t, "", nil, "man"); got.code != exit.Usage {
		t.Errorf("without --dir: %+v", got)
	}
}
