//go:build !linux

package main

import (
	"errors"
	"os"
)

func (d *disk) freeze() error { return errors.ErrUnsupported }

func (d *disk) thaw() error { return errors.ErrUnsupported }

func reserve(*os.File, int64) error { return errors.ErrUnsupported }
