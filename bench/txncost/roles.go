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

// Servers are this program again, with a role, and so is the writer of -what large: each has
// processors, as the language shares them out, and memory of its own.
const (
	roleVariable = "TXNCOST_ROLE"
	roleServer   = "server"
	roleWriter   = "writer"
	roleBurner   = "burner"

	// What servers and burners are told, a line each: to say how long goroutines have waited for a
	// processor since they were asked last, and to compute, with as many processors as the number
	// that follows.
	sayLook = "look"
	sayBurn = "burn"
)

// actor is a process with a role.
type actor struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
	waiting sync.Once
	// atEnd is the processor time that it used until its end, in nanoseconds; 0 before.
	atEnd atomic.Int64
	said  string
	err   error
}

// begin starts one. It ends when end is called, at the latest.
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

// line is the next that it prints.
func (a *actor) line() (string, error) {
	s, err := a.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

// tell tells it a line.
func (a *actor) tell(format string, arguments ...any) error {
	_, err := fmt.Fprintf(a.in, format+"\n", arguments...)
	return err
}

// queued asks servers how long goroutines have waited for a processor since they were asked last.
func (a *actor) queued() (string, error) {
	if err := a.tell(sayLook); err != nil {
		return "", err
	}
	return a.line()
}

// burn has it compute, with so many processors.
func (a *actor) burn(processors float64) error { return a.tell("%s %f", sayBurn, processors) }

// wait waits for its end, and keeps what it printed.
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

// used is the processor time that it has used so far; 0: unknown.
func (a *actor) used() time.Duration {
	if t := a.atEnd.Load(); t != 0 {
		return time.Duration(t)
	}
	return processorTime(a.command.Process.Pid)
}

// finish has it end, and returns what it printed last.
func (a *actor) finish() (string, error) {
	_ = a.in.Close() // that is how it is told
	err := a.wait()
	return a.said, err
}

func (a *actor) end() {
	_ = a.command.Process.Kill() // unless it has ended
	_ = a.wait()
}

// play plays a role.
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
		return err // the goroutine that waits for a line has to hear that there is none
	}
	fmt.Println(&m)
	return nil
}

// obey does what it is told, until it is wanted no more.
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

// peakMemory is the most that this process has used.
type peakMemory struct{ heap uint64 }

// watch looks at the heap now and then, until the function that it returns is called.
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

// String tells the peaks in MiB. Only Linux tells the resident set's.
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
