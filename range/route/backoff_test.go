package route

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
)

func TestBackoff(t *testing.T) {
	b := backoff.Backoff{Base: 5 * time.Millisecond, Cap: 50 * time.Millisecond, Jitter: 0.5,
		AtOnce: 1}
	for n, want := range []time.Duration{0, 5, 10, 20, 40, 50, 50} {
		if got := b.Delay(n, 0); got != want*time.Millisecond {
			t.Errorf("failure %d: %s", n, got)
		}
		if got := b.Delay(n, 0.999999); got < want*time.Millisecond/2-time.Microsecond ||
			got > want*time.Millisecond {
			t.Errorf("failure %d with jitter: %s", n, got)
		}
	}
	if got := b.Delay(1000, 0); got != b.Cap {
		t.Errorf("far out: %s", got)
	}
	for _, b := range []backoff.Backoff{routingBackoff, leaderlessBackoff, connectionBackoff} {
		if b.Cap > 100*time.Millisecond {
			t.Errorf("%s waits up to %s: longer than a look for a leader may", b.Name, b.Cap)
		}
	}
}
