package main

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
)

// helpColumns is how wide help is at most, and as it is written.
const helpColumns = 100

// fitHelp lays help out for the terminal, if that is narrower than help is written. Examples stay
// as they are: they are there to be copied.
func (a *app) fitHelp(root *cobra.Command) {
	if a.width == 0 || a.width >= helpColumns {
		return
	}
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		screen := a.screen()
		cmd.Long = screen.Reflow(cmd.Long)
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		for line := range strings.Lines(text.String()) {
			if !strings.HasPrefix(line, "  tidemark ") {
				line = screen.Text(line)
			}
			_, _ = out.Write([]byte(line))
		}
	})
}
