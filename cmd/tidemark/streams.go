package main

import (
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"
)

// streams is what a run of the program takes from its process.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// Whether somebody sits there: a question can be asked, a bar drawn.
	inTerminal, outTerminal, errTerminal bool
	getenv                               func(string) string
	// hangups gives the SIGHUPs of the process, which do not end it any more, until stop is called; nil if there are none.
	hangups func() (signals <-chan os.Signal, stop func())
	// width is how wide the terminal is; 0 if there is none.
	width int
}

func processStreams() streams {
	width := 0
	if columns, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		width = columns
	}
	return streams{
		width: width,
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
