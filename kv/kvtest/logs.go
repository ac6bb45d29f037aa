package kvtest

import (
	"bytes"
	"log/slog"
	"sync"
)

// keptLines is how much of the log is shown of a test that failed.
const keptLines = 400

// tail keeps the last lines that were written to it.
type tail struct {
	mu    sync.Mutex
	lines [][]byte
	next  int
}

// newTailLogger logs into a tail.
func newTailLogger() (*slog.Logger, *tail) {
	t := &tail{}
	return slog.New(slog.NewTextHandler(t, &slog.HandlerOptions{Level: slog.LevelInfo})), t
}

// Write implements io.Writer; each call is a line.
func (t *tail) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) < keptLines {
		t.lines = append(t.lines, bytes.Clone(line))
	} else {
		t.lines[t.next] = bytes.Clone(line)
		t.next = (t.next + 1) % keptLines
	}
	return len(line), nil
}

// String is the lines, the oldest first.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b bytes.Buffer
	for i := range t.lines {
		b.Write(t.lines[(t.next+i)%len(t.lines)])
	}
	return b.String()
}
