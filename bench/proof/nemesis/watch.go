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

// verdict is what a line of a server's log means.
type verdict int

const (
	// harmless lines belong to what is done to the servers.
	harmless verdict = iota
	// noticeable ones are errors that a reader of the report should look at.
	noticeable
	// broken ones say that a server or a replica is.
	broken
)

var (
	// crashes begin lines that a Go program writes when it crashes.
	crashes = []string{"panic:", "fatal error:", "unexpected fault address", "WARNING: DATA RACE",
		"SIGSEGV"}
	// brokenWords are in errors that no fault of this program may cause: it damages no file.
	brokenWords = []string{"invariant", "corrupt", "checksum", "replica failed", "does not open",
		"reading the state failed",
		"response dropped", "makes no sense", "another cluster", "server failed", "disk failed",
		"removed from this node", "reading the core's store"}
	// wrongClock is said of a clock that is off beyond the bound, or jumps.
	wrongClock = "THE CLOCK OF THIS SERVER "
)

// judgeLine judges a line of a server's log. clocks says that a clock is, or was a moment ago, set
// off beyond the bound.
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
	// seen are the messages of which one was reported.
	seen map[string]bool
}

// maxChunk bounds what is read of a log at a time.
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
		end = len(text) // one endless line
	}
	l.offset += int64(end)
	return strings.Split(strings.TrimSuffix(string(text[:end]), "\n"), "\n"), nil
}

// message is what a line of a log says, without when, and without names.
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

// watchLogs looks at what the servers wrote since the last time.
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
			w.mu.down[i] = true // said once
			w.mu.Unlock()
		}
	}
}

// limit is what a metric of a healthy server may be at most.
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
	// Of a server that is whole and has some tens of partitions and clients.
	{"tidemark_node_unhealthy", 0},
	{"tidemark_replica_queued_writes", 5000},
	{"tidemark_replica_proposals_in_flight", 5000},
	{"tidemark_node_gc_pending_partitions", 1000},
	{"go_goroutines", 5000},
	{"process_resident_memory_bytes", 2 << 30},
}

// exceeded says which limits are.
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

// watchMetrics looks at the metrics of all servers, which must be whole.
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
