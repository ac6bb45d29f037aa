package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config describes the program to run.
type Config struct {
	// Name is used in errors and reports.
	Name string
	// Path is the program, and Args its arguments.
	Path string
	Args []string
	// Env is added to the environment of this process.
	Env []string
	// Log is the file to which standard output and standard error are appended. Start makes its
	// directory.
	Log string
	// Processors are those on which the child may run; empty: those of this process. Linux only.
	Processors []int
}

// Process is one running (or ended) child.
type Process struct {
	config Config
	cmd    *exec.Cmd
	done   chan struct{}

	mu struct {
		sync.Mutex
		// exit is the result of Wait. It is valid once done is closed.
		exit error
	}
}

// Start runs the program. The error says which process could not be started.
func Start(config Config) (*Process, error) {
	if err := os.MkdirAll(filepath.Dir(config.Log), 0o755); err != nil {
		return nil, fmt.Errorf("directory of the log of %s: %w", config.Name, err)
	}
	log, err := os.OpenFile(config.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("log of %s: %w", config.Name, err)
	}
	p := &Process{config: config, done: make(chan struct{})}
	p.cmd = exec.Command(config.Path, config.Args...)
	p.cmd.Env = append(os.Environ(), config.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = Attributes()
	started := make(chan error, 1)
	go func() {
		// The kernel ties the child's death signal to the thread that made the child, so this
		// goroutine keeps its thread for as long as the child lives. The thread ends with the goroutine,
		// because the child's processors are also those of the thread.
		runtime.LockOSThread()
		defer log.Close()
		defer close(p.done)
		var err error
		if len(config.Processors) > 0 {
			err = runThreadOn(0, config.Processors)
		}
		if err == nil {
			err = p.cmd.Start()
		}
		started <- err
		if err != nil {
			return
		}
		err = p.cmd.Wait()
		p.mu.Lock()
		p.mu.exit = err
		p.mu.Unlock()
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s (%s): %w", config.Name, config.Path, err)
	}
	return p, nil
}

// Name is the name given in Config.
func (p *Process) Name() string { return p.config.Name }

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed once the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ExitCode is the process's exit code once it has ended; -1 if a signal ended the process, or if it
// runs.
func (p *Process) ExitCode() int {
	if p.Running() {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Exit is nil if the process ended with exit code 0, otherwise the error. It is valid once Done is
// closed.
func (p *Process) Exit() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.exit
}

// Signal sends a signal. If the process has ended, that is no error.
func (p *Process) Signal(signal os.Signal) error {
	err := p.cmd.Process.Signal(signal)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %v to %s: %w", signal, p.config.Name, err)
	}
	return nil
}

// Pause stops the process with SIGSTOP: the process keeps its connections and its memory, and does
// nothing.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Resume continues a paused process.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the process at once, as kill -9 does, and returns when the process is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

// Stop sends SIGTERM, and kills the process if it does not end within patience.
func (p *Process) Stop(patience time.Duration) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	// A paused process does not handle SIGTERM before it is continued.
	if err := p.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		if err := p.Kill(); err != nil {
			return err
		}
		return fmt.Errorf("%s did not end within %v of SIGTERM and was killed", p.config.Name,
			patience)
	}
}

// LogTail returns the end of the process's log, at most n bytes, for error messages.
func (p *Process) LogTail(n int64) string { return Tail(p.config.Log, n) }

// LogPath is the path of the process's log.
func (p *Process) LogPath() string { return p.config.Log }

// Tail returns the end of a file, at most n bytes, from the start of a line; empty if the file
// cannot be read.
func Tail(path string, n int64) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	start := max(size-n, 0)
	if _, err := file.Seek(start, io.SeekStart); err != nil {
		return ""
	}
	text, err := io.ReadAll(io.LimitReader(file, n))
	if err != nil {
		return ""
	}
	if start > 0 {
		if _, rest, ok := strings.Cut(string(text), "\n"); ok {
			return rest
		}
	}
	return string(text)
}
