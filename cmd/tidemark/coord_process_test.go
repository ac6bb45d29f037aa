//go:build linux

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// program starts the program in a process of its own, with a command that prints its process id,
// and returns that when it runs.
func (b shared) program(script string, args ...string) (*exec.Cmd, *screen, int) {
	b.t.Helper()
	cmd := exec.Command(os.Args[0], append(args, "--", "sh", "-c", script)...)
	cmd.Env = append(os.Environ(), asProgram+"=1", endpointsEnv+"="+b.environment[endpointsEnv])
	out, words := newScreen(), newScreen()
	cmd.Stdout, cmd.Stderr = out, words
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = cmd.Process.Kill() })
	limit := time.After(time.Minute)
	for {
		found := regexp.MustCompile(`command (\d+)\n`).FindStringSubmatch(out.String())
		if found != nil {
			pid, err := strconv.Atoi(found[1])
			if err != nil {
				b.t.Fatal(err)
			}
			return cmd, words, pid
		}
		select {
		case <-out.changed:
		case <-limit:
			b.t.Fatalf("the command does not run:\n%s\n%s", out, words)
		}
	}
}

// isGone waits until a process has ended.
func isGone(t *testing.T, pid int) {
	t.Helper()
	limit := time.Now().Add(20 * time.Second)
	for syscall.Kill(pid, 0) != syscall.ESRCH {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil &&
			regexp.MustCompile(`\) Z `).Match(stat) {
			return // nothing has waited for it
		}
		if time.Now().After(limit) {
			t.Fatalf("the process %d runs on", pid)
		}
		runtime.Gosched()
	}
}

// A command does not outlive the program, however that ends.
func TestCommandEndsWithTheProgram(t *testing.T) {
	b := service(t)
	needsShell(t)
	// A program that inherits that hang-ups are ignored ignores them; the tests may run so.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	const script = `echo "command $$"; exec sleep 100`
	for _, args := range [][]string{{"lock", "p/1"}, {"elect", "p/2", "x"},
		{"timer", "p/3", "200ms"}} {
		cmd, _, pid := b.program(script, args...)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		isGone(t, pid)
	}
	for _, sent := range []syscall.Signal{syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGTERM} {
		cmd, words, pid := b.program(script, "lock", "p/4")
		if err := cmd.Process.Signal(sent); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exit.Interrupted {
			t.Errorf("%s: exit code %d: %s", sent, code, words)
		}
		isGone(t, pid)
		b.ok("lock", "p/4", "--no-wait", "--", "true") // it was given back
	}
}

// When the service does not answer any more, a command is ended before its session is over, also
// one that does not want to.
func TestCommandEndsBeforeItsSession(t *testing.T) {
	needsShell(t)
	cluster, err := reference.Start(t.Context(),
		reference.Options{Args: []string{"--unsafe-no-fsync"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	b := shared{t, map[string]string{endpointsEnv: strings.Join(cluster.Endpoints(), ",")}}
	const ttl = 6 * time.Second
	cmd, words, pid := b.program(
		`trap 'echo told' TERM; echo "command $$"; while :; do sleep 0.1; done`,
		"lock", "p/5", "--ttl", ttl.String(), "--kill-after", "1s")
	if err := cluster.Kill(0); err != nil {
		t.Fatal(err)
	}
	silent := time.Now()
	isGone(t, pid)
	if after := time.Since(silent); after > ttl {
		t.Errorf("the command has ended %s after the last answer", after)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exit.Failed ||
		!strings.Contains(words.String(), "has not answered") {
		t.Errorf("exit code %d: %s", code, words)
	}
	if out := cmd.Stdout.(*screen).String(); !strings.Contains(out, "told") {
		t.Errorf("%q: it was not told to end", out)
	}
}
