package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

// verdict is the meaning of a line of a server's log.
type verdict int

const (
	// harmless lines are expected results of the faults.
	harmless verdict = iota
	// noticeable lines are errors that a reader of the report should see.
	noticeable
	// broken lines say that a server or a replica is broken.
	broken
)

var (
	// crashes has the beginnings of lines that a Go program writes when it crashes.
	crashes = []string{"panic:", "fatal error:", "unexpected fault address", "WARNING: DATA RACE",
		"SIGSEGV"}
	// brokenWords occur in errors that no fault of this program may cause, because no fault damages a
	// file.
	brokenWords = []string{"invariant", "corrupt", "checksum", "replica failed", "does not open",
		"reading the state failed",
		"response dropped", "makes no sense", "another cluster", "server failed", "disk failed",
		"removed from this node", "reading the core's store"}
	// wrongClock begins the messages about a clock that is off beyond the bound, or that jumps.
	wrongClock = "THE CLOCK OF THIS SERVER "
)

// judgeLine judges a line of a server's log. clocks is true while a clock is set off beyond the
// bound, and shortly after.
func judgeLine(line string, clocks bool) verdict {
	for _, crash := range crashes {
		if strings.HasPrefix(line, crash) {
			return broken
		}
	}
	if !strings.Contains(line, "level=ERROR") {
		return harmless
	}
	if clocks && strings.Contains(line, wrongClock) {
		return harmless
	}
	lower := strings.ToLower(line)
	for _, word := range brokenWords {
		if strings.Contains(lower, word) {
			return broken
		}
	}
	return noticeable
}

// logReader reads a log as it grows.
type logReader struct {
	path   string
	offset int64
	// seen has the messages that were already reported.
	seen map[string]bool
}

// maxChunk bounds the bytes that one call reads from a log.
const maxChunk = 16 << 20

// lines returns the whole lines that were added since the last call.
func (l *logReader) lines() ([]string, error) {
	file, err := os.Open(l.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, l.offset, maxChunk))
	if err != nil {
		return nil, err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	if end == 0 && len(text) == maxChunk {
		end = len(text) // a line without an end
	}
	l.offset += int64(end)
	return strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n"), nil
}

// message returns the message of a log line, without the time and without names.
func message(line string) string {
	_, rest, ok := strings.Cut(line, "msg=")
	if !ok {
		return line
	}
	if strings.HasPrefix(rest, `"`) {
		if end := strings.Index(rest[1:], `"`); end >= 0 {
			return rest[1 : 1+end]
		}
	}
	word, _, _ := strings.Cut(rest, " ")
	return word
}

// watchLogs checks the lines that the servers wrote since the last call.
func (w *world) watchLogs(clocks bool) error {
	for i, l := range w.logs {
		lines, err := l.lines()
		if err != nil {
			return err
		}
		if l.seen == nil {
			l.seen = make(map[string]bool)
		}
		for n, line := range lines {
			what := judgeLine(line, clocks)
			if what == harmless || l.seen[message(line)] {
				continue
			}
			l.seen[message(line)] = true
			if what == broken {
				w.proof.Violation("%s says: %s", w.servers[i].Name,
					strings.Join(lines[n:min(n+30, len(lines))], "\n"))
			} else {
				w.journal.finding("%s says: %s", w.servers[i].Name, line)
			}
		}
	}
	return nil
}

// watchProcesses looks for processes that ended by themselves.
func (w *world) watchProcesses() {
	for _, i := range w.running() {
		if p := w.servers[i].Process(); !p.Running() {
			w.proof.Violation("%s ended by itself (%v); its log ends:\n%s", w.servers[i].Name,
				p.Exit(), p.LogTail(4000))
			w.mu.Lock()
			w.mu.down[i] = true // so that the end is reported once
			w.mu.Unlock()
		}
	}
}

// limit is the largest value of a metric on a healthy server.
type limit struct {
	name string
	most float64
}

var limits = []limit{
	{"tidemark_host_failed_groups_total", 0},
	{"tidemark_replica_failures_total", 0},
	{"tidemark_node_replicas_failed_total", 0},
	{"tidemark_node_broken_replicas", 0},
	{"tidemark_rpc_bad_replies_total", 0},
	// The limits are for a server without faults, with some tens of partitions and clients.
	{"tidemark_node_unhealthy", 0},
	{"tidemark_replica_queued_writes", 5000},
	{"tidemark_replica_proposals_in_flight", 5000},
	{"tidemark_node_gc_pending_partitions", 1000},
	{"go_goroutines", 5000},
	{"process_resident_memory_bytes", 2 << 30},
}

// exceeded returns an error with the limits that the samples exceed.
func exceeded(samples []fleet.Sample) error {
	var failures []error
	for _, l := range limits {
		sum := 0.0
		for _, s := range samples {
			if s.Name == l.name {
				sum += s.Value
			}
		}
		if sum > l.most {
			failures = append(failures, fmt.Errorf("%s is %v, and may be at most %v", l.name, sum,
				l.most))
		}
	}
	return errors.Join(failures...)
}

// watchMetrics checks the metrics of all servers. All servers must be without faults.
func (w *world) watchMetrics(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for _, s := range w.servers {
		samples, err := s.Metrics(ctx)
		if err == nil {
			err = exceeded(samples)
		}
		if err != nil && ctx.Err() == nil {
			w.proof.Violation("metrics of %s: %v", s.Name, err)
		}
	}
}
