package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// The values of --color.
const (
	colorAuto   = "auto"
	colorAlways = "always"
	colorNever  = "never"
)

var colors = []string{colorAuto, colorAlways, colorNever}

// colorFlag adds --color, which every command has.
func (a *app) colorFlag(root *cobra.Command) {
	root.PersistentFlags().StringVar(&a.color, "color", colorAuto,
		"colour words about health and errors: auto (on a terminal, unless NO_COLOR is set), always "+
			"or never")
	_ = root.RegisterFlagCompletionFunc("color",
		cobra.FixedCompletions(colors, cobra.ShellCompDirectiveNoFileComp))
}

func checkColor(value string) error {
	if value == "" || slices.Contains(colors, value) {
		return nil
	}
	return exit.Usagef("--color %s: want %s", value, strings.Join(colors, ", "))
}

// screen describes where standard output goes.
func (a *app) screen() output.Screen {
	return output.Screen{Width: a.width, Color: a.colored(a.outTerminal), Headers: a.headers}
}

// errScreen describes where standard error goes. Its lines are not wrapped.
func (a *app) errScreen() output.Screen {
	return output.Screen{Color: a.colored(a.errTerminal)}
}

// colored reports whether output to a stream is coloured. NO_COLOR with any value turns colours off
// (no-color.org), and so does a terminal without colours.
func (a *app) colored(terminal bool) bool {
	switch a.color {
	case colorAlways:
		return true
	case colorNever:
		return false
	}
	return terminal && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// print prints a text that is part of the result, for people. It wraps the text to the width of the
// terminal.
func (a *app) print(text string) error {
	_, err := fmt.Fprint(a.out, a.screen().Text(text))
	return err
}

// sayCut prints once, on standard error, how to see the lines of a stream without cuts.
func (a *app) sayCut(said *bool, cut bool) {
	if cut && !*said {
		*said = true
		a.say("tidemark: … marks what was cut; --output json has all")
	}
}
