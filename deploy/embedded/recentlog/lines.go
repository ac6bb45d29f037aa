package recentlog

import (
	"bytes"
	"sync"
)

const (
	// maxBytes limits the size of all lines together. maxLine limits one line.
	maxBytes = 1 << 20
	maxLine  = 4 << 10
)

// Lines are the last lines of a log. They have their own lock; the zero value is ready.
type Lines struct {
	mu sync.Mutex
	// lines has the lines in the order of writing. first is the index of the oldest line that is kept.
	lines [][]byte // guarded by mu
	first int      // guarded by mu
	bytes int      // guarded by mu
}

// Write implements io.Writer. text is one line. A long line is cut.
func (l *Lines) Write(text []byte) (int, error) {
	line := bytes.Clone(text[:min(len(text), maxLine)])
	if len(line) < len(text) {
		line[len(line)-1] = '\n'
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	l.bytes += len(line)
	for l.bytes > maxBytes {
		l.bytes -= len(l.lines[l.first])
		l.lines[l.first] = nil
		l.first++
	}
	if l.first > len(l.lines)/2 {
		l.lines = append([][]byte(nil), l.lines[l.first:]...)
		l.first = 0
	}
	return len(text), nil
}

// Text returns the lines, the oldest first.
func (l *Lines) Text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join(l.lines[l.first:], nil)
}
