// Package hint has the errors by which a member of the core refuses a call. They carry a hint,
// which tells them from errors that the network made, and which names the leader and the members of
// the core as the member knows them.
package hint

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Unavailable returns the error of a member that cannot serve at present: the hint is empty, and
// the caller may try again.
func Unavailable(format string, args ...any) error {
	return Error(codes.Unavailable, fmt.Sprintf(format, args...), &clusterpb.CoreHint{})
}

// Error is an error with a hint. FailedPrecondition says that the member does not lead the core.
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

// Of finds the hint in an error; ok is false if there is none. refused is set if the member does
// not lead the core; leader is the address of the member that does, empty if it is not known.
func Of(err error) (leader string, refused, ok bool) {
	hint, code := find(err)
	return hint.GetLeader(), hint != nil && code == codes.FailedPrecondition, hint != nil
}

// Members returns the members of the core that an error names; nil if the error names none.
func Members(err error) *clusterpb.CoreMembers {
	hint, _ := find(err)
	return hint.GetMembers()
}
