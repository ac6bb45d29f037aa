package rpc

import (
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// ErrorDetail finds the first detail of type T in the gRPC error in err's chain.
func ErrorDetail[T proto.Message](err error) (detail T, ok bool) {
	for _, d := range status.Convert(err).Details() {
		if detail, ok = d.(T); ok {
			return detail, true
		}
	}
	return detail, false
}
