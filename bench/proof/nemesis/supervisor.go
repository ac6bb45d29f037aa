package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/links"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

const (
	// runPrefix begins the names of the runs' directories. lockName is the name of the file whose lock
	// prevents two runs at a time.
	runPrefix = "tidemark-nemesis-"
	lockName  = "tidemark-nemesis.lock"
)

// supervise starts this program once more as the harness, and cleans up after the harness however
// it ends. It returns the exit code.
func supervise(o options, args []string) int {
	if o.dir == "" {
		o.dir = os.TempDir()
	}
	unlock, err := lock(filepath.Join(os.TempDir(), lockName))
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		return 1
	}
	defer unlock()
	if err := tidy(o.dir); err != nil {
		fmt.Fprintln(os.Stderr, "nemesis: what an earlier run left cannot be removed:", err)
		return 1
	}
	dir, err := os.MkdirTemp(o.dir, runPrefix)
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		return 1
	}
	code := runHarness(append(slices.Clone(args), "-harness", dir, "-seed", fmt.Sprint(o.seed)))
	if err := tidy(o.dir); err != nil {
		fmt.Fprintln(os.Stderr, "nemesis: tidying up:", err)
		code = max(code, 1)
	}
	// The images of the disks have no data that the mounted directories did not have, and they are
	// large.
	if images, err := filepath.Glob(filepath.Join(dir, "disks", "*.img")); err == nil && code == 0 {
		for _, image := range images {
			_ = os.Remove(image)
		}
	}
	if code == 0 && !o.keep {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "nemesis:", err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(os.Stderr, "nemesis: logs, schedule and report are in %s; the servers' disks, "+
		"if they are there, are disks/*.img (mount -o loop)\n", dir)
	return code
}

// runHarness runs the harness, passes signals on to it, and returns its exit code.
func runHarness(args []string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		return 1
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = process.Attributes()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "nemesis:", err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			// After the first signal the harness ends in order. After the second signal it ends at once.
			_ = cmd.Process.Signal(s)
		case err := <-ended:
			var exit *exec.ExitError
			switch {
			case err == nil:
				return 0
			case errors.As(err, &exit) && exit.ExitCode() > 0:
				return exit.ExitCode()
			default:
				fmt.Fprintln(os.Stderr, "nemesis: the harness:", err)
				return 1
			}
		}
	}
}

// tidy removes the things that runs in a directory may have left: processes in namespaces,
// namespaces, mounts. Servers end by themselves when their harness ends. The caller has the lock,
// so no run is under way.
func tidy(dir string) error {
	failures := []error{links.RemoveLeftovers()}
	runs, err := filepath.Glob(filepath.Join(dir, runPrefix+"*"))
	failures = append(failures, err)
	for _, run := range runs {
		failures = append(failures, fleet.UnmountBelow(run))
	}
	return errors.Join(failures...)
}

// lock takes the lock that only one run on a machine can have. All runs use the same names of
// namespaces.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := file.ReadAt(holder, 0)
		return nil, errors.Join(fmt.Errorf("another run is under way (process %s; lock %s): %w",
			holder[:n], path, err), file.Close())
	}
	if err := errors.Join(file.Truncate(0),
		func() error { _, err := fmt.Fprint(file, os.Getpid()); return err }()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil // the end of the file handle releases the lock
}
