package rpc

import (
	"context"
	"errors"
	"regexp"

	"google.golang.org/grpc/status"
)

// What gRPC and the net package wrap around the words that matter, and what is left of it.
var wrappings = []struct {
	pattern *regexp.Regexp
	rest    string
}{
	{regexp.MustCompile(`rpc error: code = \w+ desc = `), ""},
	{regexp.MustCompile(`connection error: desc = "(?:transport: )?(?:[Ee]rror while dialing: )?(.*?)"$`), "$1"},
	{regexp.MustCompile(`dial (?:tcp|unix)(?: \S+)?: (?:connect: )?`), ""},
	{regexp.MustCompile(`listen tcp \S+: (?:bind: )?`), ""},
	{regexp.MustCompile(`lookup (\S+) on \S+: `), "$1: "},
	{regexp.MustCompile(`(?:read|write) tcp \S+: (?:read|write): `), ""},
}

// Reason is why a call to another server failed, in words for people who know its address: what gRPC and the network put around
// them is taken off. Of a connection that could not be made it says what to do about it (see
// connection_failure.go).
func Reason(err error) string {
	if err == nil {
		return "no reason known"
	}
	text := err.Error()
	var wrapped interface{ GRPCStatus() *status.Status }
	if errors.As(err, &wrapped) {
		if st := wrapped.GRPCStatus(); st != nil && st.Message() != "" {
			text = st.Message()
		}
	}
	for _, w := range wrappings {
		text = w.pattern.ReplaceAllString(text, w.rest)
	}
	if failure := connectionFailure(text); failure != "" {
		return failure
	}
	switch text {
	case context.DeadlineExceeded.Error(), context.Canceled.Error(), "stream terminated by RST_STREAM with error code: CANCEL":
		return "no answer in time"
	case "error reading from server: EOF", "error reading from server: connection reset by peer", "connection reset by peer", "broken pipe":
		return "the connection was closed: the server stopped, or something between closed it"
	}
	return text
}
