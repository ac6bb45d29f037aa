//go:build !linux

package fleet

import (
	"errors"
	"os"
)

func (d *Disk) freeze() error { return errors.ErrUnsupported }

func (d *Disk) Thaw() error { return errors.ErrUnsupported }

func reserve(*os.File, int64) error { return errors.ErrUnsupported }
