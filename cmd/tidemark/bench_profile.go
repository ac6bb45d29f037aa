package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
)

// profiled runs do, and leaves a processor profile of this process in the file; none if it is empty.
func profiled(file string, do func() error) (err error) {
	if file == "" {
		return do()
	}
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("processor profile: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := pprof.StartCPUProfile(out); err != nil {
		return fmt.Errorf("processor profile: %w", err)
	}
	defer pprof.StopCPUProfile()
	return do()
}
