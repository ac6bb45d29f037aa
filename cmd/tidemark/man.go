package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/manual"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// manCommand writes the files that a package of the program installs: `make man`.
func (a *app) manCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "man --dir DIR",
		Short:  "Write the manual pages and the completions of shells into a directory",
		Hidden: true,
		Long: `Write the manual pages of all commands (man/*.1) and the completions of bash, zsh and
fish (completions/bash/tidemark, completions/zsh/_tidemark, completions/fish/tidemark.fish) into a
directory, as a package installs them. Existing files are replaced.`,
		Args: arguments("", 0, 0),
	}
	cmd.RunE = a.verb(func(context.Context, []string) error { return a.man(cmd.Root(), dir) })
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the files; made if it does not exist")
	_ = cmd.MarkFlagDirname("dir")
	return a.printing(cmd)
}

func (a *app) man(root *cobra.Command, dir string) error {
	if dir == "" {
		return exit.Usagef("give --dir, the directory of the files")
	}
	list := a.list(output.Column{Name: "file"})
	write := func(content []byte, parts ...string) error {
		path := filepath.Join(append([]string{dir}, parts...)...)
		list.Row(path)
		return writePublic(path, content)
	}
	for _, page := range manual.Pages(root, buildVersion()) {
		if err := write([]byte(page.Text), "man", page.File); err != nil {
			return err
		}
	}
	name := root.Name()
	for _, shell := range []struct {
		folder, file string
		generate     func(io.Writer) error
	}{
		{"bash", name, func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"zsh", "_" + name, root.GenZshCompletion},
		{"fish", name + ".fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		var script bytes.Buffer
		if err := shell.generate(&script); err != nil {
			return err
		}
		if err := write(script.Bytes(), "completions", shell.folder, shell.file); err != nil {
			return err
		}
	}
	return list.Flush()
}

// writePublic writes a file that every user may read, whatever the umask of servers is.
func writePublic(path string, content []byte) error {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, content, 0o644), os.Chmod(path, 0o644),
		os.Chmod(folder, 0o755))
}
