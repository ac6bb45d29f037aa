package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// streams is what a run of the program takes from its process.
type streams struct {
	in       io.Reader
	out, err io.Writer
	// Whether somebody sits there: a question can be asked, a bar drawn.
	inTerminal, outTerminal, errTerminal bool
	getenv                               func(string) string
}

func processStreams() streams {
	return streams{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		inTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		outTerminal: term.IsTerminal(int(os.Stdout.Fd())),
		errTerminal: term.IsTerminal(int(os.Stderr.Fd())) && os.Getenv("TERM") != "dumb",
		getenv:      os.Getenv,
	}
}
