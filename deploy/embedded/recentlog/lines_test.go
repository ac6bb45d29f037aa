package recentlog

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestHandler(t *testing.T) {
	var log bytes.Buffer
	var lines Lines
	logger := slog.New(NewHandler(slog.NewTextHandler(&log, nil), &lines))
	logger.Debug("not in the log")
	logger.With("node", 7).WithGroup("of").Info("begins", "key", "mine", "n", 3,
		"range_end", "mine2")
	type named []byte
	logger.Warn("raw", "named", named("secret"), "list", [][]byte{[]byte("secret")}, "texts",
		[]string{`"secret"`}, "struct", struct{ Key string }{`"secret"`})
	logger.Warn(`no merge of "secret\" key"`, "start", []byte("secret"), "at", `"secret"`, "error",
		errors.New(`at "secret"`), "cut", `at "secret`, "cut2", `at "x" and "secret\`,
		"raw", []byte("secret"), "kept", "this")
	for name, text := range map[string]string{"log": log.String(), "lines": string(lines.Text())} {
		if strings.Contains(text, "not in the log") || strings.Count(text, "\n") != 3 ||
			!strings.Contains(text, "node=7 of.") || !strings.Contains(text, "of.n=3") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if text := string(lines.Text()); strings.Contains(text, "mine") ||
		strings.Contains(text, "secret") || !strings.Contains(text, "kept=this") ||
		!strings.Contains(log.String(), "mine") {
		t.Errorf("keys are in the lines, or not in the log: %s", text)
	}
}

// A log that is off, or takes errors only, leaves the lines from Info on to reports.
func TestQuietLog(t *testing.T) {
	var log bytes.Buffer
	var lines Lines
	logger := slog.New(NewHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{
		Level: slog.LevelError}), &lines))
	logger.Debug("nothing")
	logger.Info("something")
	logger.Error("trouble")
	if text := string(lines.Text()); strings.Count(text, "\n") != 2 ||
		!strings.Contains(text, "something") || strings.Contains(log.String(), "something") ||
		!strings.Contains(log.String(), "trouble") {
		t.Errorf("lines %q, log %q", text, log.String())
	}
}

func TestBound(t *testing.T) {
	var lines Lines
	for i := range 20_000 {
		fmt.Fprintf(&lines, "line %d %s\n", i, strings.Repeat("x", i%200))
	}
	fmt.Fprintf(&lines, "long %s\n", strings.Repeat("y", 3*maxLine))
	text := string(lines.Text())
	if len(text) > maxBytes || len(text) < maxBytes-2*maxLine {
		t.Errorf("%d bytes are kept", len(text))
	}
	if !strings.Contains(text, "line 19999 ") || strings.Contains(text, "line 1 ") {
		t.Error("the last lines are kept, not others")
	}
	if len(lines.lines) > 2*(len(lines.lines)-lines.first) {
		t.Errorf("%d lines are held for %d", len(lines.lines), len(lines.lines)-lines.first)
	}
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "\n") || len(line) > maxLine {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
}
