//go:build unix

package watchdog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// startTimeout is the time that a watchdog has to start.
	startTimeout = 20 * time.Second
	// tellTimeout limits the time for writing a line to the watchdog: a watchdog that does not read is
	// stopped.
	tellTimeout = 100 * time.Millisecond
	// grace is the additional time after which this process does what the watchdog should have done.
	grace = time.Second
)

// Command is a command to run.
type Command struct {
	// Args are the program and its arguments, and Env its environment.
	Args, Env []string
	// In, Out and Err are its standard streams. nil means no stream.
	In       io.Reader
	Out, Err io.Writer
	// Patience is the time between SIGTERM and SIGKILL.
	Patience time.Duration
	// Interactive gives the command the foreground of the terminal from the beginning, if this process
	// is in the foreground. Otherwise the command gets the foreground when it reads from the terminal.
	Interactive bool
	// Failed is called at most once, if the watchdog ends before the command. The command is then
	// ended.
	Failed func(error)
}

// Process is a running command. Its methods may be called from any goroutine, Wait only once.
type Process struct {
	Command
	cmd      *exec.Cmd
	dog      *exec.Cmd
	terminal *terminal
	// group is the command's process group. It is 0 if the command is in the group of this process.
	group int
	// ended is closed when the watchdog has ended. verdict, which may be read afterwards, is the
	// watchdog's last line: empty if the watchdog was killed.
	//
	// INVARIANT: the watchdog is waited for (dog.Wait) only after the last signal to the group.
	// Until then the system gives the watchdog's number, which is also that of the group, to no
	// other process or group, even if the group is empty.
	ended   chan struct{}
	verdict string

	mu struct {
		sync.Mutex
		tell *os.File
		// deadline is the last deadline sent to the watchdog.
		deadline int64
		// finished: the watchdog may end. ending: the command was told to end. closed: the group gets no
		// more signals, because its number may soon belong to another group. overdue: this process has
		// killed the command at the deadline.
		finished, ending, closed, overdue bool
		last, tick                        *time.Timer
	}
}

// Start starts a command that must have ended by a deadline (Clock). The calling goroutine must be
// locked to its thread until Wait has returned: the kernel kills the command when that thread ends.
func Start(c Command, deadline int64) (p *Process, err error) {
	p = &Process{Command: c, ended: make(chan struct{})}
	p.terminal = openTerminal()
	if err := p.startDog(deadline); err != nil {
		p.terminal.close()
		return nil, fmt.Errorf("start a process that watches over the command: %w", err)
	}
	p.terminal.begin(p.group, c.Interactive)
	p.cmd = exec.Command(c.Args[0], c.Args[1:]...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = c.In, c.Out, c.Err, c.Env
	p.cmd.WaitDelay = c.Patience
	p.cmd.SysProcAttr = endsWithThread()
	if p.group != 0 {
		p.cmd.SysProcAttr.Setpgid, p.cmd.SysProcAttr.Pgid = true, p.group
	}
	if err := p.cmd.Start(); err != nil {
		p.finish()
		p.terminal.end()
		p.terminal.close()
		return nil, err
	}
	p.mu.Lock()
	p.sayLocked("started " + strconv.Itoa(p.cmd.Process.Pid))
	p.mu.tick = time.AfterFunc(0, p.look)
	p.mu.Unlock()
	p.terminal.follow(p.cmd.Process.Pid)
	go p.watchDog()
	return p, nil
}

// look enforces the deadline if the watchdog is stopped: it continues the watchdog when an action
// is due, and kills the command at the deadline. It runs in a goroutine of the timer.
func (p *Process) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.finished {
		return
	}
	next := lookAgain // a timer stops in a suspended machine, but the deadline does not
	if p.mu.deadline != Never {
		switch left := time.Duration(p.mu.deadline - Clock()); {
		case left <= 0:
			p.mu.overdue = p.mu.overdue || !p.mu.ending
			p.signalLocked(syscall.SIGKILL)
		case left <= p.Patience:
			_ = p.dog.Process.Signal(syscall.SIGCONT)
			next = min(next, left)
		default:
			next = min(next, left-p.Patience)
		}
	}
	p.mu.tick.Reset(next)
}

// startDog starts the watchdog, and returns when the watchdog leads its group.
func (p *Process) startDog(deadline int64) (err error) {
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	heard, say, err := os.Pipe()
	if err != nil {
		return errors.Join(err, tell.Close())
	}
	defer func() {
		if err != nil {
			_ = heard.Close()
		}
	}()
	own, of := "1", syscall.Getpgrp()
	if !p.terminal.ownGroup() {
		own = "0"
	}
	program, err := self()
	if err == nil {
		p.dog = &exec.Cmd{Path: program, Args: []string{name, strconv.FormatInt(int64(p.Patience), 10),
			strconv.FormatInt(deadline, 10), strconv.Itoa(of), own}, Env: os.Environ(), Stdin: told,
			Stdout: say, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}
		err = p.dog.Start()
	}
	_ = say.Close()
	if err != nil {
		return errors.Join(err, tell.Close())
	}
	if own == "1" {
		p.group = p.dog.Process.Pid
	}
	p.mu.tell, p.mu.deadline = tell, deadline
	_ = heard.SetReadDeadline(time.Now().Add(startTimeout))
	first := make([]byte, len(ready))
	if _, err = io.ReadFull(heard, first); err == nil && string(first) != ready {
		err = fmt.Errorf("it says %q", first)
	}
	if err != nil {
		_ = p.dog.Process.Kill()
		return errors.Join(err, ignoreExit(p.dog.Wait()), tell.Close())
	}
	_ = heard.SetReadDeadline(time.Time{})
	go p.hear(heard)
	return nil
}

// hear waits for the end of the watchdog without releasing its number: it waits for the end of a
// pipe that no other process has. It is a goroutine of the process.
func (p *Process) hear(heard *os.File) {
	defer close(p.ended)
	defer heard.Close()
	verdict, _ := io.ReadAll(io.LimitReader(heard, 64))
	p.verdict = string(verdict)
}

func ignoreExit(err error) error {
	if of := (*exec.ExitError)(nil); errors.As(err, &of) {
		return nil
	}
	return err
}

// watchDog is a goroutine that handles an early end of the watchdog.
func (p *Process) watchDog() {
	<-p.ended
	p.mu.Lock()
	early := !p.mu.finished && p.verdict != saysOverdue
	p.mu.Unlock()
	if early {
		if p.Failed != nil {
			p.Failed(errors.New("the process that watches over the command was ended"))
		}
		p.End()
	}
}

// Until tells the watchdog of another deadline (Clock).
func (p *Process) Until(deadline int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if deadline != p.mu.deadline && !p.mu.ending {
		p.mu.deadline = deadline
		p.sayLocked("until " + strconv.FormatInt(deadline, 10))
	}
}

// End ends the command: by SIGTERM, and when its patience is over by SIGKILL.
func (p *Process) End() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.ending || p.mu.finished {
		return
	}
	p.mu.ending = true
	late := grace
	if !p.sayLocked("end") {
		// There is no watchdog that would send the signal.
		p.signalLocked(syscall.SIGTERM)
		p.signalLocked(syscall.SIGCONT)
		late = 0
	} else {
		_ = p.dog.Process.Signal(syscall.SIGCONT) // the watchdog may be stopped
	}
	p.mu.last = time.AfterFunc(p.Patience+late, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.signalLocked(syscall.SIGKILL)
	})
}

// sayLocked writes a line to the watchdog, and reports whether a watchdog reads it.
func (p *Process) sayLocked(line string) bool {
	select {
	case <-p.ended:
		return false
	default:
	}
	_ = p.mu.tell.SetWriteDeadline(time.Now().Add(tellTimeout))
	_, err := p.mu.tell.WriteString(line + "\n")
	if err != nil {
		_ = p.dog.Process.Kill() // watchDog does the rest
	}
	return err == nil
}

// signalLocked sends a signal to the command and its group. It is used if the watchdog is gone or
// stopped.
func (p *Process) signalLocked(s syscall.Signal) {
	if p.mu.closed {
		return
	}
	if p.group == 0 {
		_ = p.cmd.Process.Signal(s)
		return
	}
	signalOutside(p.group, p.cmd.Process, s)
	_ = syscall.Kill(-p.group, s)
}

// signalOutside sends a signal to a command that has left its group, and to the group that the
// command has created, as interactive shells and timeout do.
//
// The system may reuse the number of a process after the process was waited for. So the command's
// group is looked up first, and then the command's handle is checked: if the command can still be
// signalled, the number was the command's at the look-up. A race remains for the duration of one
// system call. It would require that the system gives out all other numbers during this time,
// because the system gives out numbers in turn.
func signalOutside(group int, command *os.Process, s syscall.Signal) {
	switch of, err := syscall.Getpgid(command.Pid); {
	case err != nil, of == group:
	case command.Signal(syscall.Signal(0)) != nil:
	case of == command.Pid:
		_ = syscall.Kill(-of, s)
	default:
		_ = command.Signal(s)
	}
}

// Wait waits until the command has ended, and, if it was told to end, until its child processes
// have ended. overdue: the watchdog has ended the command because the deadline was near.
func (p *Process) Wait() (state *os.ProcessState, overdue bool, err error) {
	err = ignoreExit(p.cmd.Wait())
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // processes that it has left behind still write
	}
	state = p.cmd.ProcessState
	p.terminal.end()
	defer p.terminal.close()
	overdue = p.finish()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		p.terminal.interrupted(status.Signal())
	}
	return state, overdue, err
}

// finish makes the watchdog end. If the group was told to end, the watchdog ends when the group is
// empty. finish reports whether the command was ended because of the deadline.
func (p *Process) finish() (overdue bool) {
	p.mu.Lock()
	p.mu.finished = true
	p.sayLocked("gone")
	ending, last, tick := p.mu.ending, p.mu.last, p.mu.tick
	p.mu.Unlock()
	_ = p.dog.Process.Signal(syscall.SIGCONT) // the watchdog may be stopped
	limit := grace
	if ending {
		limit += p.Patience
	}
	late := time.AfterFunc(limit, func() { _ = p.dog.Process.Kill() })
	if p.cmd.Process == nil { // the command was not started, and nobody waits for the watchdog
		_ = p.dog.Process.Kill()
	}
	<-p.ended
	late.Stop()
	for _, timer := range []*time.Timer{last, tick} {
		if timer != nil {
			timer.Stop()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verdict == "" && (ending || p.mu.overdue) && p.group != 0 {
		_ = syscall.Kill(-p.group, syscall.SIGKILL) // the rest of a group without a watchdog
	}
	p.mu.closed = true
	_ = p.dog.Wait()
	_ = p.mu.tell.Close()
	return p.mu.overdue || p.verdict == saysOverdue
}

// self returns the path of this program.
func self() (string, error) {
	if _, err := os.Stat(selfLink); err == nil {
		return selfLink, nil // works even if the file was replaced
	}
	return os.Executable()
}

const selfLink = "/proc/self/exe"

// Ended returns the exit code for a shell: 128 plus the number of the signal if a signal ended the
// command.
func Ended(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
