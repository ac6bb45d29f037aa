package wire

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func saysUnavailable(text string) error { return status.Error(codes.Unavailable, text) }

func TestReason(t *testing.T) {
	const closed = "the connection was closed: the server stopped, or something between closed it"
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, "no reason known"},
		{errors.New("plain"), "plain"},
		{status.Error(codes.Unavailable, "this server is starting"), "this server is starting"},
		{fmt.Errorf("asking: %w", status.Error(codes.Unavailable, "this server is starting")),
			"this server is starting"},
		{saysUnavailable(`connection error: desc = "transport: Error while dialing: ` +
			`dial tcp 127.0.0.1:1: connect: connection refused"`), "connection refused"},
		{saysUnavailable(`connection error: desc = "error reading server preface: ` +
			`http2: failed reading the frame payload: EOF"`),
			"it closed the connection before it answered: it stopped, or is not a server of " +
				"Tidemark, or of another version"},
		{saysUnavailable(`connection error: desc = "error reading server preface: ` +
			`http2: failed reading the frame payload: http2: frame too large, ` +
			`note that the frame header looked like an HTTP/1.1 header"`),
			"what answers there is not a server of Tidemark: check the address"},
		{saysUnavailable(`connection error: desc = "transport: Error while dialing: ` +
			`dial tcp: lookup nowhere on 10.0.0.1:53: no such host"`), "nowhere: no such host"},
		{saysUnavailable(`connection error: desc = "transport: authentication handshake failed: ` +
			`tls: first record does not look like a TLS handshake"`),
			"the server speaks no TLS: connect without TLS, or check the address"},
		{saysUnavailable(`error reading from server: ` +
			`read tcp 127.0.0.1:2->127.0.0.1:1: read: connection reset by peer`), closed},
		{status.Error(codes.Unavailable, `error reading from server: EOF`), closed},
		{context.DeadlineExceeded, "no answer in time"},
		{status.Error(codes.Canceled, "context canceled"), "no answer in time"},
	} {
		if got := Reason(c.err); got != c.want {
			t.Errorf("Reason(%v) = %q, want %q", c.err, got, c.want)
		}
	}
}

func TestErrorDetail(t *testing.T) {
	s, err := status.New(codes.FailedPrecondition, "core leader is a:1").
		WithDetails(&clusterpb.CoreHint{Leader: "a:1"})
	if err != nil {
		t.Fatal(err)
	}
	err = fmt.Errorf("heartbeat: %w", s.Err())
	if hint, ok := ErrorDetail[*clusterpb.CoreHint](err); !ok || hint.Leader != "a:1" ||
		status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	if _, ok := ErrorDetail[*clusterpb.Founding](err); ok {
		t.Fatal("found what is not there")
	}
	for _, err := range []error{nil, errors.New("plain"), status.Error(codes.Unavailable, "bare")} {
		if _, ok := ErrorDetail[*clusterpb.CoreHint](err); ok {
			t.Fatal(err)
		}
	}
}
