package engine

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
)

// pebbleLogger takes Pebble's messages.
type pebbleLogger struct{ g *diskHealth }

var _ pebble.Logger = pebbleLogger{}

// Infof is Pebble's running commentary.
func (l pebbleLogger) Infof(format string, args ...any) {
	if l.g.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.g.logger.Debug(fmt.Sprintf(format, args...))
	}
}

// Errorf is for what Pebble goes on after.
func (l pebbleLogger) Errorf(format string, args ...any) {
	// A failed engine has said all there is to say, and Pebble keeps trying.
	if l.g.err() == nil {
		l.g.logger.Error(fmt.Sprintf(format, args...))
	}
}

// Fatalf is for what Pebble cannot go on after. It expects not to come back. Ours does come back,
// but the engine has failed by then: nothing more reaches the disk and no call succeeds.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.g.fail(fmt.Errorf(format, args...))
}
