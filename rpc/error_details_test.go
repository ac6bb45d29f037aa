package rpc

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

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
