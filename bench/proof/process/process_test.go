package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func startShell(t *testing.T, script string) *Process {
	t.Helper()
	p, err := Start(Config{Name: "shell", Path: "/bin/sh", Args: []string{"-c", script},
		Log: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestOutputAndExitCodeAreSeen(t *testing.T) {
	p := startShell(t, "echo first; echo second >&2; exit 3")
	<-p.Done()
	if p.ExitCode() != 3 || p.Running() {
		t.Errorf("exit code %d, running %v; want 3, false", p.ExitCode(), p.Running())
	}
	if got := p.LogTail(100); got != "first\nsecond\n" {
		t.Errorf("log %q", got)
	}
	if got := p.LogTail(9); got != "second\n" {
		t.Errorf("short tail %q", got)
	}
	if err := p.Signal(os.Interrupt); err != nil {
		t.Errorf("signal to an ended process: %v", err)
	}
}

func TestKillEndsAPausedProcess(t *testing.T) {
	p := startShell(t, "while :; do sleep 1; done")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if p.Exit() == nil {
		t.Error("a killed process has no exit error")
	}
}

func TestStopIsGracefulAndThenNot(t *testing.T) {
	polite := startShell(t, "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done")
	deaf := startShell(t, "trap '' TERM; echo up; while :; do sleep 0.05; done")
	for _, p := range []*Process{polite, deaf} {
		if err := Until(t.Context(), "shell is up", 5*time.Millisecond,
			func(context.Context) error {
				if p.LogTail(10) == "" {
					return errors.New("no output yet")
				}
				return nil
			}, p); err != nil {
			t.Fatal(err)
		}
	}
	if err := polite.Stop(time.Minute); err != nil {
		t.Errorf("polite: %v", err)
	}
	if err := deaf.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(),
		"was killed") {
		t.Errorf("deaf: %v; want that it was killed", err)
	}
}

func TestUntilReportsAnEndedProcess(t *testing.T) {
	p := startShell(t, "echo cannot start; exit 1")
	err := Until(t.Context(), "ready", time.Millisecond,
		func(context.Context) error { return errors.New("not ready") }, p)
	if err == nil || !strings.Contains(err.Error(), "cannot start") {
		t.Errorf("error %v; want one with the end of the log", err)
	}
}

func TestUntilGivesUpWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	cause := errors.New("not ready")
	if err := Until(ctx, "ready", time.Millisecond,
		func(context.Context) error { return cause }); !errors.Is(err, cause) {
		t.Errorf("error %v; want the last check's", err)
	}
}

func TestParseStat(t *testing.T) {
	const line = "1234 (a (odd) name) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20 0 9 0 100 1000000 33 " +
		"18446744073709551615 1\n"
	usage, err := parseStat(line, 4096)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Usage{UserSeconds: 2.5, SystemSeconds: 0.5,
		ResidentBytes: 33 * 4096}); usage != want {
		t.Errorf("usage %+v, want %+v", usage, want)
	}
	if usage.CPUSeconds() != 3 {
		t.Errorf("processor seconds %v, want 3", usage.CPUSeconds())
	}
	for _, bad := range []string{"", "1 name S", "1 (name) S 1 2", strings.Replace(line, "250", "x",
		1)} {
		if _, err := parseStat(bad, 4096); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestUsageOfThisProcess(t *testing.T) {
	usage, err := ReadUsage(os.Getpid())
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	if usage.ResidentBytes <= 0 {
		t.Errorf("usage %+v", usage)
	}
}

func TestFreeAddressesDiffer(t *testing.T) {
	addresses, err := FreeAddresses(20)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, address := range addresses {
		if seen[address] {
			t.Errorf("%s twice", address)
		}
		seen[address] = true
	}
}
