package exit

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Prefixes and suffixes that gRPC adds to a message, and their replacements.
var wrappings = []struct {
	pattern *regexp.Regexp
	rest    string
}{
	{regexp.MustCompile(`rpc error: code = \w+ desc = `), ""},
	{regexp.MustCompile(`connection error: desc = "transport: Error while dialing: ([^"]*)"`), "$1"},
	// The address is already at the beginning of the message.
	{regexp.MustCompile(`(\S+): dial tcp \S+: connect: `), "$1: "},
	{regexp.MustCompile(`dial tcp: lookup (\S+) on \S+: `), "$1: "},
	// The advice in this message is for programs. It is replaced by flags.
	{regexp.MustCompile(regexp.QuoteMeta(wire.ReasonWantsTLS)),
		"the server wants TLS, and was called without: give --tls, and --tls-ca FILE if " +
			"this machine does not know the authority that signed its certificate"},
	{regexp.MustCompile(regexp.QuoteMeta(wire.ReasonNoTLS)),
		"the server speaks no TLS: leave out --tls and --tls-ca, unset TIDEMARK_TLS and " +
			"TIDEMARK_TLS_CA, or check the address"},
	{regexp.MustCompile(regexp.QuoteMeta(wire.ReasonUnknownAuthority)),
		"the server's certificate is signed by an authority that is not known here: " +
			"give its file with --tls-ca"},
	{regexp.MustCompile(regexp.QuoteMeta(wire.ReasonWantsCertificate)),
		"the server wants a client certificate, and was given none: give --tls-cert and --tls-key"},
	// This is Cobra's message about flags that exclude each other.
	{regexp.MustCompile(
		`if any flags in the group \[.*\] are set none of the others can be; ` +
			`\[(\S+) (\S+)\] were all set`),
		"--$1 and --$2 exclude each other: give one of them"},
	{regexp.MustCompile(
		`if any flags in the group \[.*\] are set none of the others can be; ` +
			`\[(\S+) (\S+) (\S+)\] were all set`),
		"--$1, --$2 and --$3 exclude each other: give one of them"},
	{regexp.MustCompile(`open the client with a user and its password`),
		"give --user, and its password in a file (--password-file)"},
	// This advice is for programs only.
	{regexp.MustCompile(`ask kv\.Outcome, or (read what it has written),`), "$1"},
}

// Message returns the text of an error as it is printed. The SDK's errors begin with the SDK's
// name. run prints the name of the program instead, once.
func Message(err error) string {
	text := strings.ReplaceAll(strings.TrimPrefix(oneLine(err.Error()), "tidemark: "),
		": tidemark: ", ": ")
	for _, w := range wrappings {
		text = w.pattern.ReplaceAllString(text, w.rest)
	}
	return output.Plain(text)
}

// oneLine puts the lines of joined errors into one line, and removes repetitions.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		said := slices.ContainsFunc(lines, func(earlier string) bool {
			return strings.HasSuffix(earlier, line)
		})
		if line != "" && line != "<corruption detail carrier>" && !said {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// OfClient returns the exit code for an error of the SDK.
func OfClient(err error) int {
	is := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	switch {
	case is(kv.ErrOutcomeUnknown): // first, because such an error also has a cause
		return Unknown
	case is(kv.ErrConflict, kv.ErrTransactionAborted):
		return Conflict
	// This comes before ErrTimestampTooOld, which such an error also wraps: the arguments were right.
	case is(kv.ErrTransactionTooOld):
		return Failed
	case is(kv.ErrNotFound, kv.ErrKeyspaceNotFound, kv.ErrConsumerNotFound):
		return NotFound
	case is(kv.ErrInvalidArgument, kv.ErrKeyspaceExists, kv.ErrTimestampTooOld,
		kv.ErrTimestampInFuture):
		return Usage
	case is(kv.ErrUnavailable, kv.ErrNoQuorum, kv.ErrOverloaded, kv.ErrDiskFull, kv.ErrQuota,
		context.DeadlineExceeded):
		return Unavailable
	}
	return Failed
}
