//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// childOf is the child of a process that its first argument names.
func childOf(t *testing.T, parent int, name string) int {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		stat, _ := os.ReadFile(path)
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		if len(fields) > 1 && fields[1] == strconv.Itoa(parent) &&
			bytes.HasPrefix(line, []byte(name+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	t.Fatalf("the process %d has no child %s", parent, name)
	return 0
}

// What a command has started ends with it: when the program is told to end, is killed, or when its
// watchdog is.
func TestWhatACommandHasStartedEndsToo(t *testing.T) {
	b := service(t)
	needsShell(t)
	// The process of which the number is printed is a child of the shell, and takes no SIGTERM.
	const script = `sh -c 'trap "" TERM; echo "command $$"; while :; do sleep 0.1; done' & wait`
	for _, c := range []struct {
		name string
		end  func(program *exec.Cmd) error
		code int
	}{
		{"told to end", func(p *exec.Cmd) error { return p.Process.Signal(syscall.SIGTERM) },
			exit.Interrupted},
		{"killed", func(p *exec.Cmd) error { return p.Process.Kill() }, -1},
		{"the watchdog is killed", func(p *exec.Cmd) error {
			return syscall.Kill(childOf(t, p.Process.Pid, "tidemark-watchdog"), syscall.SIGKILL)
		}, exit.Failed},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := shared{t, b.environment}
			cmd, words, pid := b.program(script, "lock", "g/1", "--kill-after", "500ms")
			if err := c.end(cmd); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d: %s", code, words)
			}
			isGone(t, pid)
			b.ok("lock", "g/1", "--wait", "1m", "--", "true")
		})
	}
}

// What is left in the group of a command that was told to end has as long as that to end.
func TestTheRestOfACommandHasItsPatience(t *testing.T) {
	b := service(t)
	needsShell(t)
	file := filepath.Join(t.TempDir(), "cleaned-up")
	// The shell ends at once, and its child takes a moment to clean up.
	script := fmt.Sprintf(`sh -c 'trap "sleep 0.3; touch %s; exit" TERM; echo "command $$"; `+
		`while :; do sleep 0.05; done' & wait`, file)
	cmd, words, pid := b.program(script, "lock", "g/2", "--ttl", "1m", "--kill-after", "19s")
	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	isGone(t, pid)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("%v: %s", err, words)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it was waited for the whole patience, %s", took)
	}
}

// A command is ended before the service gives the lock away, also while the program stands still;
// the program says so when it goes on.
func TestCommandEndsWhileTheProgramStandsStill(t *testing.T) {
	b := service(t)
	needsShell(t)
	cmd, words, pid := b.program(
		`trap "" TERM; echo "command $$"; while :; do sleep 0.05; done`,
		"lock", "g/3", "--ttl", "4s", "--kill-after", "500ms")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	got := b.ok("lock", "g/3", "--", "sh", "-c", fmt.Sprintf(
		`kill -0 %d 2>/dev/null && ! grep -q ") Z " /proc/%d/stat && echo alive; true`, pid, pid))
	if strings.Contains(got, "alive") {
		t.Error("another one has the lock, and the command lives")
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exit.Failed {
		t.Errorf("exit code %d: %s", code, words)
	}
}

// terminalOf is a pseudo terminal with a shell in it that has job control.
type terminalOf struct {
	t     *testing.T
	keys  *os.File
	shown *screen
	shell *exec.Cmd
}

func (b shared) terminal(shell string, args ...string) *terminalOf {
	t := b.t
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Skip(err)
	}
	line, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer line.Close()
	cmd := exec.Command(shell, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", endpointsEnv+"="+b.environment[endpointsEnv],
		"TIDEMARK="+os.Args[0], "PS1=", "ENV=", "HOME="+t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = line, line, line
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	shown := newScreen()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			if n > 0 {
				_, _ = shown.Write(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-copied
	})
	return &terminalOf{t, keys, shown, cmd}
}

// types types something.
func (x *terminalOf) types(text string) {
	x.t.Helper()
	if _, err := x.keys.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// shows waits until the terminal shows what a pattern describes, and returns its first group.
func (x *terminalOf) shows(pattern string) string {
	x.t.Helper()
	limit := time.After(time.Minute)
	for {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(x.shown.String()); found != nil {
			return found[len(found)-1]
		}
		select {
		case <-x.shown.changed:
		case <-limit:
			x.t.Fatalf("the terminal does not show %q:\n%s", pattern, x.shown)
		}
	}
}

// showsWhen is shows, and types something again and again until then.
func (x *terminalOf) showsWhen(typed, pattern string) {
	x.t.Helper()
	limit := time.Now().Add(time.Minute)
	for !regexp.MustCompile(pattern).MatchString(x.shown.String()) {
		if time.Now().After(limit) {
			x.t.Fatalf("the terminal does not show %q:\n%s", pattern, x.shown)
		}
		x.types(typed)
		select {
		case <-x.shown.changed:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// A command reads from the terminal, is interrupted from it, and stops and goes on with the job
// that it is, as without the program around it. The shell has the terminal back each time.
func TestCommandAtATerminal(t *testing.T) {
	b := service(t)
	needsShell(t)
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	x := b.terminal("bash", "--norc", "--noprofile", "-i")
	x.types("stty -echo\n")
	x.types(`$TIDEMARK lock tty/1 -- sh -c 'read -r a; echo "has read $a"'; echo "code $?."` + "\n")
	x.shows(`holding the lock tty/1`)
	x.types("this\n")
	x.shows(`has read this`)
	x.shows(`code 0\.`)

	x.types(`$TIDEMARK lock tty/2 -- sh -c 'echo "runs $$"; exec sleep 100'; echo "then $?."` + "\n")
	x.shows(`runs (\d+)`)
	x.types(ctrlC)
	x.types("echo 'the shell reads'\n")
	x.shows(`the shell reads`)
	b.ok("lock", "tty/2", "--no-wait", "--", "true") // it was given back

	x.types(`$TIDEMARK lock tty/3 --ttl 1m -- sh -c 'echo "stops $$"; read -r a; echo "went on $a"; ` +
		"exit 7'\n")
	x.shows(`stops (\d+)`)
	x.types(ctrlZ)
	x.shows(`Stopped`)
	x.types("echo 'in between'\n")
	x.shows(`in between`)
	x.types("fg\n")
	x.shows(`(?s)in between.*TIDEMARK lock tty/3`)
	x.types("again\n")
	x.shows(`went on again`)
	x.types("echo \"ended with $?.\"\n")
	x.shows(`ended with 7\.`)

	// In the background it stops when it wants to read, and reads in the foreground.
	x.types(`$TIDEMARK lock tty/4 --ttl 1m -- sh -c 'read -r b; echo "also read $b"' &` + "\n")
	x.shows(`holding the lock tty/4`)
	x.showsWhen("\n", `(?s)holding the lock tty/4.*Stopped`) // told before a prompt
	x.types("echo 'once more'\n")
	x.shows(`once more`)
	x.types("fg\n")
	x.shows(`(?s)once more.*TIDEMARK lock tty/4`)
	x.types("that\n")
	x.shows(`also read that`)

	// Behind a pipe it gets the terminal when it reads.
	x.types(`$TIDEMARK lock tty/5 -- sh -c 'read -r c; echo "piped $c"' | cat` + "\n")
	x.shows(`holding the lock tty/5`)
	x.types("through\n")
	x.shows(`piped through`)
	x.types(`$TIDEMARK lock tty/6 -- sh -c 'echo "piped $$"; exec sleep 100' | cat` + "\n")
	pid, err := strconv.Atoi(x.shows(`piped (\d+)`))
	if err != nil {
		t.Fatal(err)
	}
	x.types(ctrlC)
	isGone(t, pid)
	x.types("echo 'at last'\n")
	x.shows(`at last`)
}

// Ctrl-C ends a script, and not only the command in it that it meets.
func TestInterruptOfAScript(t *testing.T) {
	b := service(t)
	needsShell(t)
	x := b.terminal("sh", "-c", `$TIDEMARK lock tty/7 -- sh -c 'echo "runs $$"; exec sleep 100'
		echo 'the script goes on'; sleep 100`)
	x.shows(`runs (\d+)`)
	x.types(ctrlC)
	done := make(chan error, 1)
	go func() { done <- x.shell.Wait() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Errorf("the script runs:\n%s", x.shown)
	}
	if strings.Contains(x.shown.String(), "the script goes on") {
		t.Errorf("%s", x.shown)
	}
}
