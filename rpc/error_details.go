package rpc

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// ErrorWithDetail makes the gRPC error of a handler that tells the caller more than words: a
// CoreHint, for instance.
func ErrorWithDetail(code codes.Code, detail proto.Message, format string, args ...any) error {
	s := status.New(code, fmt.Sprintf(format, args...))
	if detailed, err := s.WithDetails(protoadapt.MessageV1Of(detail)); err == nil {
		s = detailed
	}
	return s.Err()
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
