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

// What gRPC and the net package wrap around the words that matter, and what is left of it.
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

// Reason is why a call to another server failed, in words for people who know its address: what
// gRPC and the network put around them is taken off. Of a connection that could not be made it says
// what to do about it (see connectionFailures).
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

// connectionFailures are the ways in which a connection cannot be made, by a part of gRPC's, TLS's
// or the network's words. The first that fits counts: what was refused is looked for before how the
// connection ended. Where something is to be done, it stands behind a colon. The words are those of
// a program; the command line puts its flags in their place.
var connectionFailures = []struct{ part, says string }{
	// What the other side said in plain text.
	{"*http2.GoAwayFrame", ReasonWantsTLS},
	{"TLS is required", ReasonWantsTLS},
	{"first record does not look like a TLS handshake", ReasonNoTLS},
	{"frame too large", reasonNotTidemark},
	{"HTTP/1.1 header", reasonNotTidemark},
	{"HTTP status code", reasonNotTidemark},
	{"initial http2 frame from server is not a settings frame", reasonNotTidemark},
	{"bogus greeting", reasonNotTidemark},

	// What is wrong with the server's certificate, as this side sees it.
	{"certificate signed by unknown authority", ReasonUnknownAuthority},
	{"certificate is not trusted", ReasonUnknownAuthority},
	{"certificate has expired or is not yet valid", reasonServerExpired},
	{"x509: certificate is valid for", reasonOtherName},
	{"doesn't contain any IP SANs", reasonOtherName},
	{"certificate is not valid for any names", reasonOtherName},
	{"certificate relies on legacy Common Name field", reasonOtherName},
	{"failed to verify certificate",
		"the server's certificate is refused here: see that it is one for servers"},

	// What the server said of the client's certificate.
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

	// How it ended, when nothing was said.
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

// connectionFailure finds the failure that a text tells of; it is empty if there is none.
func connectionFailure(text string) string {
	for _, f := range connectionFailures {
		if strings.Contains(text, f.part) {
			return f.says
		}
	}
	return ""
}

// Advised says that Reason says what to do about the error, so that nothing more general need be
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

// ErrorDetail finds the first detail of type T in the gRPC error in err's chain.
func ErrorDetail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok = d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}

// Unavailable makes a gRPC status of the failure to connect.
func Unavailable(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

// ErrorResponse is the response to a request that has failed.
func ErrorResponse(id uint64, code kvpb.ErrorCode, message string) *kvpb.Response {
	return &kvpb.Response{Id: id, Error: &kvpb.Error{Code: code, Message: message}}
}
