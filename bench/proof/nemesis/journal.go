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

// journal is what a run has to say: to the screen, and with more detail to a file. It is safe for
// concurrent use.
type journal struct {
	began  time.Time
	screen io.Writer
	file   *os.File

	mu struct {
		sync.Mutex
		now      string // what is being done
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

// note writes a line to the file only, and remembers it as what is being done.
func (j *journal) note(format string, arguments ...any) {
	j.mu.Lock()
	j.mu.now = fleet.FirstLine(fmt.Sprintf(format, arguments...))
	j.mu.Unlock()
	j.line(io.Discard, format, arguments...)
}

// finding is something that a reader of the report should look at, and that breaks no promise.
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

// doing is the latest note.
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
	// Neither can be helped: the run matters more than its words.
	_, _ = io.WriteString(screen, text)
	_, _ = j.file.WriteString(time.Now().UTC().Format("15:04:05.000 ") + text)
}

func (j *journal) close() error { return j.file.Close() }
