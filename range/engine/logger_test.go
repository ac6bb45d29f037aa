package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// Pebble's errors contain keys without quotes. The log has the errors in quotes, in which whoever
// reads it looks for keys.
func TestErrorsOfPebbleAreQuoted(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := &store{logger: logger, g: &diskHealth{logger: logger}}
	const text = `keys a"secret and b are out of order`
	s.listener().BackgroundError(errors.New(text))
	s.listener().DataCorruption(pebble.DataCorruptionInfo{Details: errors.New(text)})
	pebbleLogger{s.g}.Errorf("%s", text)
	pebbleLogger{s.g}.Infof("%s", text)
	if n := strings.Count(log.String(), "\n"); n != 4 {
		t.Fatalf("%d lines: %s", n, log.String())
	}
	for line := range strings.Lines(log.String()) {
		var fields struct{ Msg, Error string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil ||
			!strings.Contains(fields.Msg+fields.Error, strconv.Quote(text)) {
			t.Errorf("%s: %v", line, err)
		}
	}
}
