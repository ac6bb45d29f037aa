//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package follow

import "os"

// lock has no effect: this system has no file locks.
func lock(*os.File) (held bool, err error) { return true, nil }
