//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package follow

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// lock prevents other processes from writing to a file until it is closed. It returns false if
// another process has the lock. On a file system without locks it has no effect.
func lock(file *os.File) (held bool, err error) {
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EWOULDBLOCK):
			return false, nil
		case err == nil, errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOSYS),
			errors.Is(err, unix.ENOLCK):
			return true, nil
		default:
			return false, &fs.PathError{Op: "lock", Path: file.Name(), Err: err}
		}
	}
}
