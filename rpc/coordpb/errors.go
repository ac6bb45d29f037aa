package coordpb

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// notSent is the text by which etcd's client for Go recognizes that a request was not sent to any
// server.
const notSent = "there is no connection available"

// ErrNotSent is the answer of a server that could pass a request of the etcd API to no member of
// the core: nothing was done. etcd's client for Go then repeats the call, even one that changes
// something.
var ErrNotSent = status.Error(codes.Unavailable, notSent)

// IsNotSent reports that an error is ErrNotSent, or wraps it: nothing was done.
func IsNotSent(err error) bool {
	code, text := said(err)
	return code == codes.Unavailable && text == notSent
}

// IsLeaderless reports that a call was not proposed because no member leads, or another one than
// before: nothing was done, and nothing will be. This holds for Tidemark's servers and etcd's, and
// for every call that changes keys, leases, users or roles: if the outcome is open, they answer
// that the request timed out. It does not hold for a call that etcd's client for Go repeats by
// itself (LeaseGrant, LeaseRevoke), whose error is that of the last attempt.
func IsLeaderless(err error) bool {
	_, text := said(err)
	return text == "etcdserver: no leader" || text == "etcdserver: leader changed"
}

// IsTooMany reports that a server refuses a call because it, or its client, has too many calls at
// the moment: nothing was done. Servers may append to etcd's text.
func IsTooMany(err error) bool {
	code, text := said(err)
	return code == codes.ResourceExhausted && strings.HasPrefix(text, "etcdserver: too many requests")
}

// said returns what a server has said, in an error of gRPC or of etcd's client; "" for other
// errors.
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
