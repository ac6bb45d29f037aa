package main

import (
	"bytes"
	"strings"

	"github.com/spf13/cobra"
)

// helpColumns is the width for which help is written, and the largest width of the output.
const helpColumns = 100

// fitHelp wraps help for a terminal that is narrower than helpColumns. Examples are not wrapped, so
// that they can be copied.
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
