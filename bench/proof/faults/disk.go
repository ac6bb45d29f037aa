package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Disk is a filesystem of its own, small enough to be filled.
type Disk struct {
	// Dir is where it is mounted.
	Dir string
	// Kind is "ext4 on a loop device" or "tmpfs".
	Kind string
}

// MountDisk makes a filesystem of the given size below dir: ext4 in a file if there is a loop
// device, else a tmpfs. It needs root; ErrNoMount says that there is no way here.
func MountDisk(dir, name string, megabytes int) (*Disk, error) {
	mount := filepath.Join(dir, name)
	if err := os.MkdirAll(mount, 0o755); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: not root", ErrNoMount)
	}
	image := filepath.Join(dir, name+".img")
	loop := func() error {
		file, err := os.Create(image)
		if err != nil {
			return err
		}
		if err := errors.Join(file.Truncate(int64(megabytes)<<20), file.Close()); err != nil {
			return err
		}
		if output, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0",
			image).CombinedOutput(); err != nil {
			return fmt.Errorf("mkfs.ext4: %w: %s", err, output)
		}
		if output, err := exec.Command("mount", "-o", "loop", image,
			mount).CombinedOutput(); err != nil {
			return fmt.Errorf("mount: %w: %s", err, output)
		}
		return nil
	}
	loopErr := loop()
	if loopErr == nil {
		return &Disk{Dir: mount, Kind: "ext4 on a loop device"}, nil
	}
	if output, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm", megabytes),
		"tmpfs", mount).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %v; tmpfs: %v: %s", ErrNoMount, loopErr, err, output)
	}
	return &Disk{Dir: mount, Kind: "tmpfs"}, nil
}

// ErrNoMount: this machine or user cannot mount.
var ErrNoMount = errors.New("cannot mount a filesystem here")

// Unmount takes the filesystem away. The processes that use it must have ended.
func (d *Disk) Unmount() error {
	// A process that was just killed may hold the mount for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return process.Until(ctx, "unmount "+d.Dir, 100*time.Millisecond,
		func(context.Context) error { return syscall.Unmount(d.Dir, 0) })
}

// filler is the file that fills a disk.
func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill writes until there is no room left.
func (d *Disk) Fill() error {
	file, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	chunk := make([]byte, 1<<20)
	for len(chunk) > 0 {
		_, err := file.Write(chunk)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			chunk = chunk[:len(chunk)/2]
		case err != nil:
			return fmt.Errorf("fill %s: %w", d.Dir, err)
		}
	}
	if err := file.Sync(); err != nil && !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill %s: %w", d.Dir, err)
	}
	return nil
}

// MakeRoom removes what Fill wrote.
func (d *Disk) MakeRoom() error { return os.Remove(d.filler()) }
