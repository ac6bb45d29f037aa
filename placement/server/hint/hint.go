// Package hint has the errors with which a member of the core refuses a call. Each error carries a
// hint. The hint distinguishes the error from errors of the network. It names the leader and the
// members of the core as the member knows them.
package hint

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Unavailable returns the error of a member that cannot serve at present. The hint is empty, and
// the caller may retry.
func Unavailable(format string, args ...any) error {
	return Error(codes.Unavailable, fmt.Sprintf(format, args...), &clusterpb.CoreHint{})
}

// Error returns an error with a hint. The code FailedPrecondition means that the member does not
// lead the core.
func Error(code codes.Code, text string, hint *clusterpb.CoreHint) error {
	st, err := status.New(code, text).WithDetails(hint)
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return st.Err()
}

func find(err error) (*clusterpb.CoreHint, codes.Code) {
	st, ok := status.FromError(err)
	if !ok {
		return nil, codes.Unknown
	}
	for _, detail := range st.Details() {
		if hint, is := detail.(*clusterpb.CoreHint); is {
			return hint, st.Code()
		}
	}
	return nil, codes.Unknown
}

// Of returns the hint of an error. ok is false if the error has no hint. refused is set if the
// member does not lead the core. leader is the address of the leader, or empty if the member does
// not know it.
func Of(err error) (leader string, refused, ok bool) {
	hint, code := find(err)
	return hint.GetLeader(), hint != nil && code == codes.FailedPrecondition, hint != nil
}

// Members returns the members of the core that an error names, or nil if it names none.
func Members(err error) *clusterpb.CoreMembers {
	hint, _ := find(err)
	return hint.GetMembers()
}
