package archive

import (
	"errors"
	"fmt"
)

// Every error of this package wraps one of these.
var (
	// ErrCorrupt: the bytes differ from the bytes that were written. The message says what is wrong,
	// and where.
	ErrCorrupt = errors.New("corrupt backup data")
	// ErrNoIdentity: the bytes are encrypted, and none of the given identities can decrypt them. The
	// message names the recipients whose identities can.
	ErrNoIdentity = errors.New("no identity to decrypt the backup with")
	// ErrNewer: the bytes were written by a newer version of Tidemark.
	ErrNewer = errors.New("the backup was written by a newer version of Tidemark")
	// ErrInvalid: a header, record, kind, recipient or identity is not allowed. The mistake is the
	// caller's or a user's.
	ErrInvalid = errors.New("invalid")
	// ErrOrder: records were added out of order.
	ErrOrder = errors.New("records out of order")
	// ErrFull: a piece or blob would be larger than MaxPayload or MaxSealed.
	ErrFull = errors.New("too large for one object of a backup")
)

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}
