package upgrade

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Supported converts a server's report to a range of levels. A server without a report has a
// version from before there were levels.
func Supported(l *clusterpb.Levels) release.Range {
	return release.Range{Min: release.Level(l.GetMin()), Max: release.Level(l.GetMax())}
}

// Admit refuses a server whose program does not support the active and the coming level. The server
// is named by its address and its version. The error is a status with the code FailedPrecondition.
// Refused recognizes it. While a new core has no level yet, the error tells the server to ask
// again.
func (r Record) Admit(address, version string, said *clusterpb.Levels) error {
	supported := Supported(said)
	why := supported.Refusal(r.active())
	if why == "" {
		why = supported.Refusal(r.coming())
	}
	if why == "" {
		return nil
	}
	if r.founding {
		return hint.Unavailable("the core is new, and has no level of formats and messages yet")
	}
	if version == "" {
		version = "an unknown version"
	}
	text := fmt.Sprintf("the server at %s runs tidemark %s, which cannot take part in this cluster: "+
		"%s", address, version, why)
	st, err := status.New(codes.FailedPrecondition, text).WithDetails(
		&clusterpb.LevelRefusal{Level: r.State()})
	if err != nil {
		return status.Error(codes.FailedPrecondition, text)
	}
	return st.Err()
}

// Refused reports whether an error comes from Admit: the server's program does not support the
// level of the cluster.
func Refused(err error) bool {
	var s interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &s) || s.GRPCStatus().Code() != codes.FailedPrecondition {
		return false
	}
	for _, detail := range s.GRPCStatus().Details() {
		if _, ok := detail.(*clusterpb.LevelRefusal); ok {
			return true
		}
	}
	return false
}
