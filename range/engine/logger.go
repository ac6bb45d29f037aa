package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/cockroachdb/pebble/v2"
)

// quoted returns the text of an error of Pebble in quotes, for the log. The text may contain keys of
// users as they are. Whoever hides keys in the log looks for quotes.
func quoted(err error) string { return strconv.Quote(err.Error()) }

// pebbleLogger receives Pebble's messages. Like errors they are quoted.
type pebbleLogger struct{ g *diskHealth }

var _ pebble.Logger = pebbleLogger{}

// Infof takes Pebble's information messages.
func (l pebbleLogger) Infof(format string, args ...any) {
	if l.g.logger.Enabled(context.Background(), slog.LevelDebug) {
		l.g.logger.Debug("Pebble: " + strconv.Quote(fmt.Sprintf(format, args...)))
	}
}

// Errorf takes errors after which Pebble goes on.
func (l pebbleLogger) Errorf(format string, args ...any) {
	// A failed engine has already been reported, and Pebble keeps trying.
	if l.g.err() == nil {
		l.g.logger.Error("Pebble: " + strconv.Quote(fmt.Sprintf(format, args...)))
	}
}

// Fatalf takes errors after which Pebble cannot go on, and expects not to return. Here it returns,
// but the engine has failed by then: nothing more reaches the disk and no call succeeds.
func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.g.fail(fmt.Errorf(format, args...))
}
