package route

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tidemarkdb/tidemark/rpc"
)

// A write whose time ends while it waits to be sent did not happen, unless an attempt before it may have.
func TestOutcomeOfWhatWasNotSent(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	notSent := fmt.Errorf("%w: %w", rpc.ErrNotSent, context.Canceled)
	for _, c := range []struct {
		name           string
		err            error
		before         bool
		write, unknown bool
		attempts       int
	}{
		{"sent", context.Canceled, false, true, true, 3},
		{"not sent", notSent, false, true, false, 2},
		{"not sent, after one that was", notSent, true, true, true, 2},
		{"read", context.Canceled, false, false, false, 3},
	} {
		a := attempt{sender: new(Sender), call: &Call{Write: c.write}, maybe: c.before, sent: 3}
		_, err, again := a.unanswered(over, &Partition{ID: 7}, &leader{node: &node{id: 1}, term: 5}, c.err)
		var e *Error
		if again != nil || !errors.As(err, &e) || !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: %v, %v", c.name, err, again)
		}
		if e.OutcomeUnknown != c.unknown || e.Attempts != c.attempts || e.Message == "" {
			t.Errorf("%s: unknown %t after %d attempts: %v", c.name, e.OutcomeUnknown, e.Attempts, err)
		}
	}
}
