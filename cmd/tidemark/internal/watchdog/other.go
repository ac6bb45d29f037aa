//go:build !unix

package watchdog

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"time"
)

// Main does nothing: there are no watchdogs on this system.
func Main() {}

var begun = time.Now()

// Clock is the clock of deadlines.
func Clock() int64 { return int64(time.Since(begun)) }

// Command is a command to run; see the other systems.
type Command struct {
	Args, Env   []string
	In          io.Reader
	Out, Err    io.Writer
	Patience    time.Duration
	Interactive bool
	Failed      func(error)
}

// Process is a command that runs. It is ended without a warning, and not with this process.
type Process struct{ cmd *exec.Cmd }

// Start starts a command.
func Start(c Command, _ int64) (*Process, error) {
	cmd := exec.Command(c.Args[0], c.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = c.In, c.Out, c.Err, c.Env
	cmd.WaitDelay = c.Patience
	return &Process{cmd}, cmd.Start()
}

// Until does nothing.
func (*Process) Until(int64) {}

// End ends the command.
func (p *Process) End() { _ = p.cmd.Process.Kill() }

// Wait waits until the command has ended.
func (p *Process) Wait() (state *os.ProcessState, overdue bool, err error) {
	err = p.cmd.Wait()
	if of := (*exec.ExitError)(nil); errors.As(err, &of) {
		err = nil
	}
	return p.cmd.ProcessState, false, err
}

// Ended is the exit code for a shell.
func Ended(state *os.ProcessState) int { return state.ExitCode() }
