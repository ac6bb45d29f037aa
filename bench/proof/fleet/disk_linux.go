package fleet

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// fiFreeze and fiThaw are FIFREEZE and FITHAW of linux/fs.h: _IOWR('X', 119, int) and _IOWR('X',
// 120, int).
const (
	fiFreeze = 0xc0045877
	fiThaw   = 0xc0045878
)

// freeze blocks every write to the filesystem until thaw.
func (d *Disk) freeze() error { return d.control(fiFreeze, "freeze") }

// Thaw ends any stall, even a stall that another caller began.
func (d *Disk) Thaw() error { return d.control(fiThaw, "thaw") }

func (d *Disk) control(request uint, what string) error {
	dir, err := os.Open(d.Dir)
	if err == nil {
		err = errors.Join(unix.IoctlSetInt(int(dir.Fd()), request, 0), dir.Close())
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, d.Dir, err)
	}
	return nil
}

// reserve allocates blocks for a file until the disk has no free blocks. It does not write the
// blocks.
func reserve(file *os.File, size int64) error {
	offset := int64(0)
	for chunk := size; chunk >= 4096; {
		switch err := unix.Fallocate(int(file.Fd()), 0, offset, chunk); {
		case err == nil:
			offset += chunk
		case errors.Is(err, unix.ENOSPC):
			chunk /= 2
		case errors.Is(err, unix.EINTR):
		default:
			return err
		}
	}
	return nil
}
