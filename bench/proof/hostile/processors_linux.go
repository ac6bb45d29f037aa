package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// attackersProcessor is the environment variable with the number of the attackers' processor. It is
// set in processes that runApart has started.
const attackersProcessor = "TIDEMARK_HOSTILE_PROCESSOR"

// runApart executes this program again on its part of the processors. The attackers have the last
// processor that the process may use. The servers and the honest clients have the other processors;
// servers inherit them from the process that starts them. runApart does nothing in a process that
// has its part already, or if there is only one processor.
func runApart(attackers bool) error {
	var part unix.CPUSet
	if err := unix.SchedGetaffinity(0, &part); err != nil {
		return fmt.Errorf("processors of this process: %w", err)
	}
	name, known := os.LookupEnv(attackersProcessor)
	last, err := strconv.Atoi(name)
	switch {
	case known && err != nil:
		return fmt.Errorf("%s: %w", attackersProcessor, err)
	case known && !attackers, known && part.IsSet(last), !known && (attackers || part.Count() < 2):
		return nil
	case attackers:
		part = unix.CPUSet{}
		part.Set(last)
	default:
		for last = len(part)*strconv.IntSize - 1; !part.IsSet(last); last-- {
		}
		part.Clear(last)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// The new program's threads have the processors of the thread that executes it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &part); err != nil {
		return fmt.Errorf("processors for a part of the run: %w", err)
	}
	environment := append(os.Environ(), attackersProcessor+"="+strconv.Itoa(last))
	return fmt.Errorf("run again: %w", syscall.Exec(self, os.Args, environment))
}
