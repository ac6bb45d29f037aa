//go:build !linux

package links

import (
	"errors"
	"os"
)

// tun exists only on Linux.
type tun struct{ *os.File }

func openTun(string) (*tun, error) { return nil, errors.New("there are TUN devices on Linux only") }

func (t *tun) write([]byte) error { return errors.ErrUnsupported }
