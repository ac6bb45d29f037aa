package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Processors lists the processors on which this process may run, in ascending order.
func Processors() (list []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("list the processors: %w", err)
	}
	for i, left := 0, set.Count(); left > 0; i++ {
		if set.IsSet(i) {
			list = append(list, i)
			left--
		}
	}
	return list, nil
}

// RunOn lets this process and its later children run on these processors only.
func RunOn(processors []int) error {
	// New threads have the processors of the thread that starts them. A thread that an older thread
	// starts during the first pass is found by the second pass.
	for range 2 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list the threads: %w", err)
		}
		for _, task := range tasks {
			id, err := strconv.Atoi(task.Name())
			if err != nil {
				continue
			}
			if err := runThreadOn(id, processors); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
	}
	runtime.GOMAXPROCS(len(processors))
	return nil
}

// runThreadOn restricts a thread; 0 is the calling thread.
func runThreadOn(thread int, processors []int) error {
	var set unix.CPUSet
	for _, i := range processors {
		set.Set(i)
	}
	if err := unix.SchedSetaffinity(thread, &set); err != nil {
		return fmt.Errorf("run on the processors %v only: %w", processors, err)
	}
	return nil
}
