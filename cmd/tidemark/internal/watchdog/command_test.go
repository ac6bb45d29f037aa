//go:build unix

package watchdog

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	Main() // the watchdogs of the tests are this program too
	os.Exit(m.Run())
}

// started is a shell command under a watchdog.
type started struct {
	*Process
	out *os.File // what it has said can be read here
	end chan ended
}

type ended struct {
	state   *os.ProcessState
	overdue bool
	err     error
}

func start(t *testing.T, script string, patience time.Duration, deadline int64,
	failed func(error)) *started {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = read.Close() })
	s := &started{out: read, end: make(chan ended, 1)}
	ready := make(chan error)
	go func() {
		// The command ends with this goroutine's thread: see Start.
		runtime.LockOSThread()
		p, err := Start(Command{Args: []string{"sh", "-c", script}, Env: os.Environ(), Out: write,
			Err: write, Patience: patience, Failed: failed}, deadline)
		_ = write.Close()
		s.Process = p
		ready <- err
		if err != nil {
			return
		}
		state, overdue, err := p.Wait()
		s.end <- ended{state, overdue, err}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return s
}

// says waits until the command has said a word.
func (s *started) says(t *testing.T, word string) {
	t.Helper()
	var said bytes.Buffer
	for b := make([]byte, 1); !strings.Contains(said.String(), word); {
		if _, err := s.out.Read(b); err != nil {
			t.Fatalf("it said %q: %v", said.String(), err)
		}
		said.Write(b)
	}
}

// A watchdog that is stopped goes on when the command is to end, which is told to.
func TestAStoppedWatchdogGoesOn(t *testing.T) {
	s := start(t, `trap 'echo told; exit 7' TERM; echo begun; while :; do sleep 0.01; done`,
		time.Minute, Never, nil)
	s.says(t, "begun")
	if err := s.dog.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.End()
	s.says(t, "told")
	if e := <-s.end; e.err != nil || e.overdue || e.state.ExitCode() != 7 {
		t.Errorf("%+v", e)
	}
}

// A watchdog that does not go on, whatever it is sent, does not take the deadline with it: this
// process keeps the deadline, for all that the command has started.
func TestTheDeadlineIsKeptWithoutAWatchdog(t *testing.T) {
	s := start(t, `trap '' TERM; echo begun; sleep 1000`, 10*time.Millisecond,
		Clock()+int64(time.Second), nil)
	stopped, stop := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = s.dog.Process.Signal(syscall.SIGSTOP)
			}
		}
	}()
	group := s.group
	select {
	case e := <-s.end: // the watchdog is killed in the end, as it cannot end by itself
		if status, ok := e.state.Sys().(syscall.WaitStatus); e.err != nil || !e.overdue || !ok ||
			status.Signal() != syscall.SIGKILL {
			t.Errorf("%+v", e)
		}
	case <-time.After(time.Minute):
		t.Fatal("the command runs on behind its deadline")
	}
	close(stop)
	<-stopped
	for syscall.Kill(-group, 0) != syscall.ESRCH { // what was killed goes
		time.Sleep(time.Millisecond)
	}
}

// The number of the group is not free before the group has had its last signal, also if the
// watchdog was killed.
func TestTheNumberOfTheGroupStaysTaken(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("there is no /proc")
	}
	stat := func(number int) error {
		_, err := os.Stat("/proc/" + strconv.Itoa(number))
		return err
	}
	group, taken := make(chan int, 1), make(chan error, 1)
	s := start(t, `echo begun; exec sleep 1000`, time.Minute, Never, func(error) {
		taken <- stat(<-group) // the command is ended after this
	})
	s.says(t, "begun")
	group <- s.group
	if err := s.dog.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-taken; err != nil {
		t.Errorf("the watchdog that was killed: %v", err)
	}
	if e := <-s.end; e.err != nil || e.overdue {
		t.Errorf("%+v", e)
	}
	if stat(s.group) == nil {
		t.Error("the watchdog was not waited for")
	}
}

// A command that was waited for has no number any more: another process that has got it is left
// alone, and so is its group.
func TestAnotherProcessIsLeftAlone(t *testing.T) {
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	gone := exec.Command("true")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	gone.Process.Pid = other.Process.Pid // the system gives the number to the other one
	signalOutside(1<<30, gone.Process, syscall.SIGKILL)
	if err := other.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	if status := other.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
		t.Errorf("the other process ended by %v", status.Signal())
	}
}
