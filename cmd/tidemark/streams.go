package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

// streams are the parts of the process that a run of the program uses.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// These say whether the streams are terminals, for questions and progress bars.
	inTerminal, outTerminal, errTerminal bool
	getenv                               func(string) string
	// hangups returns a channel of the process's SIGHUPs. They do not end the process until stop is
	// called. hangups is nil if SIGHUPs are not handled.
	hangups func() (signals <-chan os.Signal, stop func())
	// keys is the terminal for editing lines, or nil if there is none.
	keys *screenKeys
	// width is the width of the terminal of standard output in columns. It is 0 if standard output is
	// no terminal.
	width int
	// errWidth is the same for standard error.
	errWidth int
}

func processStreams() streams {
	var keys *screenKeys
	if in := int(os.Stdin.Fd()); term.IsTerminal(in) && term.IsTerminal(int(os.Stderr.Fd())) &&
		os.Getenv("TERM") != "dumb" {
		keys = &screenKeys{
			ReadWriter: struct {
				io.Reader
				io.Writer
			}{os.Stdin, os.Stderr},
			raw: func() (func(), error) {
				before, err := term.MakeRaw(in)
				return func() { _ = term.Restore(in, before) }, err
			},
			size: func() (int, int) {
				width, height, _ := term.GetSize(in)
				return width, height
			},
		}
	}
	return streams{
		keys: keys, width: terminalWidth(os.Stdout), errWidth: terminalWidth(os.Stderr),
		hangups: func() (<-chan os.Signal, func()) {
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGHUP)
			return signals, func() { signal.Stop(signals) }
		},
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		errTerminal: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb",
		getenv:      os.Getenv,
	}
}

// terminalWidth returns the width of a terminal in columns; 0 if the file is no terminal. COLUMNS
// is used if the terminal does not report its width.
func terminalWidth(of *os.File) int {
	if !term.IsTerminal(int(of.Fd())) {
		return 0
	}
	if width, _, err := term.GetSize(int(of.Fd())); err == nil && width > 0 {
		return width
	}
	if width, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && width > 0 {
		return width
	}
	return output.UnknownWidth
}

// confirm asks the user before an action that cannot be undone. Without a terminal it refuses and
// names the flag.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !a.inTerminal {
		return exit.Usagef("%s There is no terminal to ask at: give --yes to go on", question)
	}
	fmt.Fprintf(a.err, "%s Type yes to go on: ", question)
	answer, _ := bufio.NewReader(a.in).ReadString('\n')
	if strings.TrimSpace(answer) != "yes" {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("nothing was done")}
	}
	return nil
}
