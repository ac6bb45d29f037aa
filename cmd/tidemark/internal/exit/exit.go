package exit

import (
	"context"
	"errors"
	"fmt"
)

// Exit codes. They are part of the interface: scripts rely on them, and `tidemark help exit-codes`
// explains them.
const (
	OK          = 0
	Failed      = 1
	Usage       = 2
	NotFound    = 3
	Unavailable = 4
	Unknown     = 5
	Conflict    = 6
	Degraded    = 7
	Partly      = 8
	Interrupted = 130
)

// Help explains the codes.
const Help = `A command of tidemark ends with one of these codes:

    0  success
    1  failure; the message on stderr says why; for example: a transaction began longer ago than
       versions are kept
    2  the command line is wrong, or the cluster refused an argument; nothing was changed
    3  the key, keyspace or partition does not exist, or the condition of a cas did not hold;
       nothing was changed
    4  the cluster could not be reached, or has no quorum or no free disk space, until --timeout was
       over; nothing was changed
    5  the answer to a write was lost: it may or may not have taken effect
    6  another transaction, or the holder of a lock, was in the way; nothing was changed: run it
       again
    7  status: everything is served, but there are problems: a node or a member of the core is down
       or has not caught up, a node is full or its clock is wrong, servers do not hear each other;
       recover confirm: partitions of the plan have not reported yet; backup verify: a backup cannot
       be restored; backup drill: what was restored is not what the backup has
    8  status: some partitions, or the coordination store, have no leader and cannot be read or
       written
  130  it was interrupted (Ctrl-C, SIGTERM); the message says how far it came

For txn the code is that of the failed line. Its transaction has changed nothing (except with code
5); transactions that were committed before it stay.

For lock, and for elect with a command, the code is that of the command, or 128 plus the number of
the signal that ended it.`

// Error is an error with an exit code, for errors whose kind does not determine the code.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Usagef returns the error of a wrong command line.
func Usagef(format string, args ...any) error {
	return &Error{Code: Usage, Err: fmt.Errorf(format, args...)}
}

// NotFoundf returns the error for an object that does not exist.
func NotFoundf(format string, args ...any) error {
	return &Error{Code: NotFound, Err: fmt.Errorf(format, args...)}
}

// Silent returns an error that ends the program with a code and without a message, because the
// message was printed before.
func Silent(code int) error { return &Error{Code: code, Err: ErrSaid} }

// ErrSaid is an error without a text, because the message was printed before.
var ErrSaid = errors.New("")

// Code returns the exit code for err.
func Code(ctx context.Context, err error) int {
	var coded *Error
	switch {
	case err == nil:
		return OK
	case errors.As(err, &coded) && coded.Code == Unknown:
		return Unknown // also after an interruption, which otherwise says that nothing was changed
	case ctx.Err() != nil:
		return Interrupted
	case errors.As(err, &coded):
		return coded.Code
	}
	return OfClient(err)
}
