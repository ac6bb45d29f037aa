package coordpb

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// notSent is the text by which etcd's client for Go knows that a request was not sent to any server.
const notSent = "there is no connection available"

// ErrNotSent is what a server answers that could give a request of the etcd API to no member of the
// core: nothing was done. etcd's client for Go makes such a call again, also one that changes
// something.
var ErrNotSent = status.Error(codes.Unavailable, notSent)

// IsNotSent says that an error is ErrNotSent, or wraps it: nothing was done.
func IsNotSent(err error) bool {
	var of interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &of) {
		return false
	}
	s := of.GRPCStatus()
	return s.Code() == codes.Unavailable && s.Message() == notSent
}
