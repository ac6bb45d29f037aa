package meta

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/outcome"
)

// The status of a command with an unknown outcome differs from that of a command that was not
// executed.
func TestStatusSaysWhatIsUnknown(t *testing.T) {
	var r Records
	for _, c := range []struct {
		err     error
		code    codes.Code
		unknown bool
	}{
		{fmt.Errorf("%w: the leader changed", store.ErrOutcomeUnknown), codes.Unavailable, true},
		{fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, context.DeadlineExceeded),
			codes.DeadlineExceeded, true},
		{fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, context.Canceled), codes.Canceled, true},
		{context.DeadlineExceeded, codes.DeadlineExceeded, false},
		{store.ErrOverloaded, codes.Unavailable, false},
		{Conflict("partition 7"), codes.Unavailable, false},
	} {
		err := r.Status(c.err)
		_, refused, hinted := hint.Of(err)
		if status.Code(err) != c.code || outcome.IsUnknown(err) != c.unknown || refused ||
			c.code == codes.Unavailable && !hinted {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}
