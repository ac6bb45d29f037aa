//go:build !linux

package process

import "errors"

var errNoProcessors = errors.New("processes can be kept to some processors on Linux only")

// Processors lists the processors on which this process may run, in ascending order.
func Processors() ([]int, error) { return nil, errNoProcessors }

// RunOn lets this process and its later children run on these processors only.
func RunOn([]int) error { return errNoProcessors }

func runThreadOn(int, []int) error { return errNoProcessors }
