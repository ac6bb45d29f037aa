package coordpb

import (
	"errors"
	"strings"

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
	code, text := said(err)
	return code == codes.Unavailable && text == notSent
}

// IsLeaderless says that an error is that of a call which was not proposed because no member leads,
// or another one than before: nothing was done, and nothing will be. So it is of Tidemark's servers
// and of etcd's, of every call that changes keys, leases, users or roles: if the outcome is open,
// these answer that the request timed out. It does not count for a call that etcd's client for Go
// makes again by itself (LeaseGrant, LeaseRevoke), of which the error is that of the last attempt.
func IsLeaderless(err error) bool {
	_, text := said(err)
	return text == "etcdserver: no leader" || text == "etcdserver: leader changed"
}

// IsTooMany says that a server refuses a call because it, or its client, has too many of them at
// the moment: nothing was done. Servers may say more after etcd's text.
func IsTooMany(err error) bool {
	code, text := said(err)
	return code == codes.ResourceExhausted && strings.HasPrefix(text, "etcdserver: too many requests")
}

// said is what a server has said, in an error of gRPC or in one of etcd's client; "" in any other.
func said(err error) (codes.Code, string) {
	var ofGRPC interface{ GRPCStatus() *status.Status }
	if errors.As(err, &ofGRPC) {
		return ofGRPC.GRPCStatus().Code(), ofGRPC.GRPCStatus().Message()
	}
	var ofEtcd interface {
		error
		Code() codes.Code
	}
	if errors.As(err, &ofEtcd) {
		return ofEtcd.Code(), ofEtcd.Error()
	}
	return codes.OK, ""
}
