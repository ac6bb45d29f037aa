package main

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes. They are part of the interface: scripts rely on them, and `tidemark help exit-codes` explains them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnavailable = 4
	exitUnknown     = 5
	exitConflict    = 6
	exitDegraded    = 7
	exitPartly      = 8
	exitInterrupted = 130
)

const exitCodesHelp = `A command of tidemark ends with one of these codes:

    0  it did what it was asked to
    1  it failed; the message on stderr says why; a transaction that began longer ago than versions
       are kept, for one
    2  the command line is wrong, or the cluster refused an argument; nothing was changed
    3  the key, keyspace or partition is not there, or the condition of a cas did not hold; nothing
       was changed
    4  the cluster could not be reached, or has no quorum or no free disk space, until --timeout was
       over; nothing was changed
    5  the answer to a write was lost: it may or may not have taken effect
    6  another transaction was in the way; nothing was changed: run it again
    7  status: everything is served, but something needs looking after: a node is down, full, or in
       doubt about its clock
    8  status: some partitions have no leader and cannot be read or written
  130  it was interrupted (Ctrl-C, SIGTERM); the message says how far it came

For txn the code is that of the line that failed. The transaction that it belongs to has changed
nothing (but for code 5); what was committed before it stays.`

// codedError carries the exit code of an error whose kind does not say it.
type codedError struct {
	code int
	err  error
}

func (e *codedError) Error() string { return e.err.Error() }
func (e *codedError) Unwrap() error { return e.err }

// usagef is an error of the person at the command line.
func usagef(format string, args ...any) error {
	return &codedError{exitUsage, fmt.Errorf(format, args...)}
}

func notFoundf(format string, args ...any) error {
	return &codedError{exitNotFound, fmt.Errorf(format, args...)}
}

// errSilent ends the program with a code and no further words: they have been said.
func silent(code int) error { return &codedError{code, errSaid} }

var errSaid = errors.New("")

// exitCode says how the program ends after err.
func exitCode(ctx context.Context, err error) int {
	var coded *codedError
	switch {
	case err == nil:
		return exitOK
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &coded):
		return coded.code
	}
	return exitCodeOfClient(err)
}
