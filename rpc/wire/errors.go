package wire

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Texts that gRPC and package net wrap around the relevant text, and their replacements.
var wrappings = []struct {
	pattern *regexp.Regexp
	rest    string
}{
	{regexp.MustCompile(`rpc error: code = \w+ desc = `), ""},
	{regexp.MustCompile(`connection error: desc = ` +
		`"(?:transport: )?(?:[Ee]rror while dialing: )?(.*?)"$`), "$1"},
	{regexp.MustCompile(`dial (?:tcp|unix)(?: \S+)?: (?:connect: )?`), ""},
	{regexp.MustCompile(`listen tcp \S+: (?:bind: )?`), ""},
	{regexp.MustCompile(`lookup (\S+) on \S+: `), "$1: "},
	{regexp.MustCompile(`(?:read|write) tcp \S+: (?:read|write): `), ""},
}

// Reason returns why a call to another server failed, for readers who know its address: the
// wrapping of gRPC and the network is removed. For a connection that could not be made it also says
// what to do (see connectionFailures).
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
	case context.DeadlineExceeded.Error(), context.Canceled.Error(),
		"stream terminated by RST_STREAM with error code: CANCEL":
		return "no answer in time"
	case "error reading from server: EOF", "error reading from server: connection reset by peer",
		"connection reset by peer", "broken pipe":
		return "the connection was closed: the server stopped, or something between closed it"
	}
	return text
}

// connectionFailures lists the ways in which a connection can fail, by a part of the text of gRPC,
// TLS or the network. The first match counts, so reasons of a refusal come before ways in which a
// connection ends. Advice stands behind a colon. The words are those of a program; the command line
// replaces them by its flags.
var connectionFailures = []struct{ part, says string }{
	// The other side answered in plaintext.
	{"*http2.GoAwayFrame", ReasonWantsTLS},
	{"TLS is required", ReasonWantsTLS},
	{"first record does not look like a TLS handshake", ReasonNoTLS},
	{"frame too large", reasonNotTidemark},
	{"HTTP/1.1 header", reasonNotTidemark},
	{"HTTP status code", reasonNotTidemark},
	{"initial http2 frame from server is not a settings frame", reasonNotTidemark},
	{"bogus greeting", reasonNotTidemark},

	// This side rejects the server's certificate.
	{"certificate signed by unknown authority", ReasonUnknownAuthority},
	{"certificate is not trusted", ReasonUnknownAuthority},
	{"certificate has expired or is not yet valid", reasonServerExpired},
	{"x509: certificate is valid for", reasonOtherName},
	{"doesn't contain any IP SANs", reasonOtherName},
	{"certificate is not valid for any names", reasonOtherName},
	{"certificate relies on legacy Common Name field", reasonOtherName},
	{"failed to verify certificate",
		"the server's certificate is refused here: see that it is one for servers"},

	// The server rejects the client's certificate.
	{"remote error: tls: certificate required", ReasonWantsCertificate},
	{"remote error: tls: unknown certificate authority",
		"the server refused the client certificate, since it knows no authority that signed it: " +
			"use one of an authority that the servers know"},
	{"remote error: tls: expired certificate",
		"the server refused the client certificate, since it has expired or is not valid yet: " +
			"renew it"},
	{"remote error: tls: bad certificate",
		"the server refused the client certificate: see that it is one for clients"},
	{"remote error: tls: no application protocol", reasonNotTidemarkTLS},
	{"missing selected ALPN property", reasonNotTidemarkTLS},
	{"remote error: tls: protocol version not supported",
		"the server speaks only another version of TLS: check the address"},
	{"authentication handshake failed: EOF", reasonClosed},
	{"authentication handshake failed: read tcp", reasonClosed},

	// The connection ended without a reason.
	{"error reading server preface", reasonClosed},
	{"failed to write client preface", reasonClosed},
}

// The reasons that the command line rewrites in terms of its flags.
const (
	ReasonWantsTLS         = "the server wants TLS, and was called without: connect with TLS"
	ReasonNoTLS            = "the server speaks no TLS: connect without TLS, or check the address"
	ReasonUnknownAuthority = "the server's certificate is signed by an authority that is not " +
		"known here: give the authority that signed it"
	ReasonWantsCertificate = "the server wants a client certificate, and was given none: " +
		"connect with a certificate and its key"
)

const (
	reasonNotTidemark    = "what answers there is not a server of Tidemark: check the address"
	reasonNotTidemarkTLS = "what answers there speaks TLS and is not a server of Tidemark, " +
		"or of an earlier version: check the address"
	reasonServerExpired = "the server's certificate has expired or is not valid yet: renew it, " +
		"or set this machine's clock"
	reasonOtherName = "the server's certificate is for another name or address: " +
		"connect to one that is in it, or put this one in it"
	reasonClosed = "it closed the connection before it answered: it stopped, " +
		"or is not a server of Tidemark, or of another version"
)

// connectionFailure returns the failure that a text describes; empty if there is none.
func connectionFailure(text string) string {
	for _, f := range connectionFailures {
		if strings.Contains(text, f.part) {
			return f.says
		}
	}
	return ""
}

// Advised reports that Reason says what to do about the error, so that no general advice need be
// added.
func Advised(err error) bool {
	text := Reason(err)
	for _, f := range connectionFailures {
		if f.says == text && f.says != reasonClosed {
			return true
		}
	}
	return false
}

// ErrorDetail returns the first detail of type T in the gRPC error in err's chain.
func ErrorDetail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok = d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}

// Unavailable makes a gRPC status from a failure to connect.
func Unavailable(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

// ErrorResponse returns the response to a request that has failed.
func ErrorResponse(id uint64, code kvpb.ErrorCode, message string) *kvpb.Response {
	return &kvpb.Response{Id: id, Error: &kvpb.Error{Code: code, Message: message}}
}
