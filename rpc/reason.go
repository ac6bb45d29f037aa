package rpc

import (
	"context"
	"errors"
	"regexp"
	"strings"

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
// them is taken off.
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
	switch {
	case strings.Contains(text, "frame too large"), strings.Contains(text, "HTTP/1.1 header"), strings.Contains(text, "HTTP status code"):
		return "what answers there is not a server of Tidemark"
	case strings.Contains(text, "error reading server preface"):
		return "it closes the connection at once: it wants TLS, or is not a server of Tidemark"
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return "it does not speak TLS, or is not a server of Tidemark"
	}
	switch text {
	case context.DeadlineExceeded.Error(), context.Canceled.Error(), "stream terminated by RST_STREAM with error code: CANCEL":
		return "no answer in time"
	case "error reading from server: EOF":
		return "the connection was closed"
	}
	return text
}
