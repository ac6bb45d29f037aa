package hint

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

func TestHints(t *testing.T) {
	members := &clusterpb.CoreMembers{Version: 7}
	for _, c := range []struct {
		err         error
		leader      string
		refused, ok bool
		version     uint64
	}{
		{err: nil},
		{err: errors.New("no status")},
		{err: status.Error(codes.FailedPrecondition, "without a hint")},
		{err: Unavailable("troubles of its own"), ok: true},
		{err: Error(codes.FailedPrecondition, "does not lead",
			&clusterpb.CoreHint{Leader: "a:1", Members: members}),
			leader: "a:1", refused: true, ok: true, version: 7},
	} {
		leader, refused, ok := Of(c.err)
		if leader != c.leader || refused != c.refused || ok != c.ok ||
			Members(c.err).GetVersion() != c.version {
			t.Errorf("%v: leader %q, refused %v, hint %v, %v", c.err, leader, refused, ok, Members(c.err))
		}
	}
}
