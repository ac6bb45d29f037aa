package main

import (
	"context"
	"errors"
	"strings"

	"github.com/tidemarkdb/tidemark/kv"
)

// message is the error as it is read aloud. The SDK's errors begin with its name; run says it once, in front.
func message(err error) string {
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "tidemark: "), ": tidemark: ", ": ")
}

// exitCodeOfClient maps the kinds of the SDK's errors.
func exitCodeOfClient(err error) int {
	is := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	switch {
	case is(kv.ErrOutcomeUnknown): // first: it comes together with why
		return exitUnknown
	case is(kv.ErrNotFound, kv.ErrKeyspaceNotFound):
		return exitNotFound
	case is(kv.ErrInvalidArgument, kv.ErrKeyspaceExists, kv.ErrTimestampTooOld, kv.ErrTimestampInFuture):
		return exitUsage
	case is(kv.ErrUnavailable, kv.ErrNoQuorum, kv.ErrOverloaded, kv.ErrDiskFull, context.DeadlineExceeded):
		return exitUnavailable
	}
	return exitFailed
}
