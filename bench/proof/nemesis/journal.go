package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// journal has the messages of a run. It writes them to the screen, and with more detail to a file.
// It is safe for concurrent use.
type journal struct {
	began  time.Time
	screen io.Writer
	file   *os.File

	mu struct {
		sync.Mutex
		now      string // the current action of the run
		findings []string
	}
}

func newJournal(screen io.Writer, path string) (*journal, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &journal{began: time.Now(), screen: screen, file: file}, nil
}

// say prints a line.
func (j *journal) say(format string, arguments ...any) { j.line(j.screen, format, arguments...) }

// note writes a line to the file only, and keeps the line as the current action.
func (j *journal) note(format string, arguments ...any) {
	j.mu.Lock()
	j.mu.now = fleet.FirstLine(fmt.Sprintf(format, arguments...))
	j.mu.Unlock()
	j.line(io.Discard, format, arguments...)
}

// finding records an observation that a reader of the report should see, and that breaks no
// promise.
func (j *journal) finding(format string, arguments ...any) {
	text := fmt.Sprintf(format, arguments...)
	j.mu.Lock()
	j.mu.findings = append(j.mu.findings, j.stamp()+text)
	j.mu.Unlock()
	j.say("FINDING: %s", text)
}

func (j *journal) findings() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.mu.findings...)
}

// doing returns the latest note.
func (j *journal) doing() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.now
}

func (j *journal) stamp() string { return fmt.Sprintf("[%7.2f] ", time.Since(j.began).Seconds()) }

func (j *journal) line(screen io.Writer, format string, arguments ...any) {
	text := strings.TrimRight(fmt.Sprintf(format, arguments...), "\n")
	j.mu.Lock()
	defer j.mu.Unlock()
	text = j.stamp() + text + "\n"
	// Errors are ignored: a run goes on without its messages.
	_, _ = io.WriteString(screen, text)
	_, _ = j.file.WriteString(time.Now().UTC().Format("15:04:05.000 ") + text)
}

func (j *journal) close() error { return j.file.Close() }
