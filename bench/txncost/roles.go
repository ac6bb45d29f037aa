package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Servers are processes of this program with a role, and so is the writer of -what large. So each
// has its own processors in Go's scheduler, and its own memory.
const (
	roleVariable = "TXNCOST_ROLE"
	roleServer   = "server"
	roleWriter   = "writer"
	roleBurner   = "burner"

	// These are the commands to servers and burners, one in each line: report how long goroutines have
	// waited for a processor since the last report; and compute with the following number of
	// processors.
	sayLook = "look"
	sayBurn = "burn"
)

// actor is a process with a role.
type actor struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	waiting sync.Once
	// atEnd is the processor time of the process at its end, in nanoseconds. It is 0 before the end.
	atEnd atomic.Int64
	said  string
	err   error
}

// begin starts a process with a role. The process ends at the latest when ctx ends.
func begin(ctx context.Context, role string, arguments ...string) (*actor, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	a := &actor{command: exec.CommandContext(ctx, self)}
	a.command.Env = append(os.Environ(), roleVariable+"="+strings.Join(append([]string{role},
		arguments...), ","))
	a.command.Stderr = os.Stderr
	if a.in, err = a.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := a.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	a.out = bufio.NewReader(out)
	return a, a.command.Start()
}

// line returns the next line of the process's output.
func (a *actor) line() (string, error) {
	s, err := a.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

// tell sends a line to the process.
func (a *actor) tell(format string, arguments ...any) error {
	_, err := fmt.Fprintf(a.in, format+"\n", arguments...)
	return err
}

// queued asks a server how long goroutines have waited for a processor since the last call.
func (a *actor) queued() (string, error) {
	if err := a.tell(sayLook); err != nil {
		return "", err
	}
	return a.line()
}

// burn makes the process compute with a number of processors.
func (a *actor) burn(processors float64) error { return a.tell("%s %f", sayBurn, processors) }

// wait waits for the end of the process, and keeps its output.
func (a *actor) wait() error {
	a.waiting.Do(func() {
		said, err := io.ReadAll(a.out)
		a.said = strings.TrimSpace(string(said))
		a.err = errors.Join(err, a.command.Wait())
		a.atEnd.Store(int64(a.command.ProcessState.UserTime() +
			a.command.ProcessState.SystemTime()))
	})
	return a.err
}

// used returns the processor time of the process so far, or 0 if it is unknown.
func (a *actor) used() time.Duration {
	if t := a.atEnd.Load(); t != 0 {
		return time.Duration(t)
	}
	return processorTime(a.command.Process.Pid)
}

// finish makes the process end, and returns the last line of its output.
func (a *actor) finish() (string, error) {
	_ = a.in.Close() // this tells the process to end
	err := a.wait()
	return a.said, err
}

func (a *actor) end() {
	_ = a.command.Process.Kill() // in case it has not ended
	_ = a.wait()
}

// play runs a role.
func play(ctx context.Context, role string) error {
	var m peakMemory
	stop := m.watch()
	parts := strings.Split(role, ",")
	var err error
	switch parts[0] {
	case roleServer:
		err = serveOne(ctx, parts[1], parts[2], parts[3], parts[4:])
	case roleBurner:
		obey(ctx)
		return nil
	case roleWriter:
		var n int
		if n, err = strconv.Atoi(parts[2]); err == nil {
			err = writeLarge(ctx, os.Stdout, parts[1], n)
		}
	}
	stop()
	if err != nil {
		return err // the goroutine that waits for a line must get the error
	}
	fmt.Println(&m)
	return nil
}

// obey executes commands until the input ends.
func obey(ctx context.Context) {
	var q queueing
	stop := func() {}
	defer func() { stop() }()
	lines := make(chan string)
	go func() { // ends with the process
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		var line string
		wanted := false
		select {
		case line, wanted = <-lines:
		case <-ctx.Done():
		}
		if !wanted {
			return
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case sayLook:
			fmt.Println(q.look().Microseconds())
		case sayBurn:
			stop()
			processors, _ := strconv.ParseFloat(rest, 64)
			stop = burn(processors)
		}
	}
}

// peakMemory has the maximum memory use of this process.
type peakMemory struct{ heap uint64 }

// watch checks the heap at intervals, until the returned function is called.
func (m *peakMemory) watch() (stop func()) {
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			metrics.Read(sample)
			m.heap = max(m.heap, sample[0].Value.Uint64())
			select {
			case <-ticker.C:
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		watcher.Wait()
	}
}

// String returns the maxima in MiB. The maximum of the resident set is known only on Linux.
func (m *peakMemory) String() string {
	resident := "unknown on " + runtime.GOOS
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				if n, err := strconv.Atoi(
					strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest),
						"kB"))); err == nil {
					resident = fmt.Sprintf("%d MiB", n>>10)
				}
			}
		}
	}
	return fmt.Sprintf("heap at most %d MiB, resident set at most %s", m.heap>>20, resident)
}
