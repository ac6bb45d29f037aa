package target

import (
	"context"
	"errors"
	"fmt"
)

// Every error of a target wraps one of these errors, or the error of the context. The message names
// the target, the operation and the object, and says what an operator can do, if anything.
var (
	// ErrNotFound: there is no object of the name.
	ErrNotFound = errors.New("no such object")
	// ErrExists: Create found an object of the name.
	ErrExists = errors.New("the object exists already")
	// ErrInvalid: a name, a size or a URL is not allowed. The mistake is the caller's.
	ErrInvalid = errors.New("invalid backup target or object")
	// ErrRefused: the target refuses the operation. Causes are credentials, permissions, a bucket or
	// directory that does not exist, or a wrong clock. An operator has to act; a retry does not help.
	ErrRefused = errors.New("refused by the target")
	// ErrFull: the target has no space, or the quota is used up.
	ErrFull = errors.New("the target is full")
	// ErrUnavailable: the target did not answer, or answered with errors, until the retries were used
	// up. A later attempt may succeed.
	ErrUnavailable = errors.New("the target is not available")
)

// failure is an error of an operation.
type failure struct {
	target, operation, name string
	// class is one of the errors above, or the error of a context.
	class error
	// cause is the error of the file system or the server, and may be nil. advice says what an
	// operator can do.
	cause  error
	advice string
}

func (f *failure) Error() string {
	text := fmt.Sprintf("backup target %s: %s", f.target, f.operation)
	if f.name != "" {
		text += " " + f.name
	}
	text += ": " + f.class.Error()
	if f.cause != nil {
		text += ": " + f.cause.Error()
	}
	if f.advice != "" {
		text += ": " + f.advice
	}
	return text
}

func (f *failure) Unwrap() []error {
	if f.cause == nil {
		return []error{f.class}
	}
	return []error{f.class, f.cause}
}

// ended returns an error if the context has ended, and nil otherwise.
func ended(ctx context.Context, target, operation, name string) error {
	if ctx.Err() == nil {
		return nil
	}
	f := &failure{target: target, operation: operation, name: name, class: ctx.Err()}
	if cause := context.Cause(ctx); cause != f.class {
		f.cause = cause
	}
	return f
}
