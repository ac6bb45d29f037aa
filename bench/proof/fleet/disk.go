package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

// Disk is a filesystem of its own, small enough to be filled.
type Disk struct {
	// Dir is the directory where the disk is mounted.
	Dir string
	// Kind is "ext4 on a loop device" or "tmpfs".
	Kind string

	mu struct {
		sync.Mutex
		// freezes counts the callers that stall the disk at present, because the kernel can freeze a disk
		// only once.
		freezes int
	}
}

// MountDisk makes a filesystem of the given size below dir: ext4 in a file if there is a loop
// device, and otherwise a tmpfs. It needs root. The error ErrNoMount means that this machine or
// this user cannot mount.
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

// ErrNoMount means that this machine or this user cannot mount filesystems.
var ErrNoMount = errors.New("cannot mount a filesystem here")

// UnmountBelow thaws and unmounts all filesystems that are mounted below a directory. The processes
// that use these filesystems must have ended.
func UnmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil // without a list of mounts, this program cannot have mounted anything
	}
	var failures []error
	for _, mount := range mountsBelow(string(mounts), dir) {
		d := &Disk{Dir: mount}
		_ = d.Thaw() // an error is ignored: the disk is mostly not frozen
		failures = append(failures, d.Unmount())
	}
	return errors.Join(failures...)
}

// mountsBelow returns the mounts below a directory from a list in the format of /proc/mounts.
func mountsBelow(list, dir string) []string {
	var found []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) > 1 && strings.HasPrefix(fields[1], strings.TrimSuffix(dir, "/")+"/") {
			found = append(found, fields[1])
		}
	}
	return found
}

// Unmount unmounts the filesystem. The processes that use the filesystem must have ended.
func (d *Disk) Unmount() error {
	// A process that was just killed may still use the mount for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return process.Until(ctx, "unmount "+d.Dir, 100*time.Millisecond,
		func(context.Context) error { return syscall.Unmount(d.Dir, 0) })
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill allocates all free blocks.
func (d *Disk) Fill() error {
	file, err := os.Create(d.filler())
	if err != nil {
		return fmt.Errorf("fill %s: %w", d.Dir, err)
	}
	if err := errors.Join(reserve(file, 1<<30), file.Close()); err != nil {
		return fmt.Errorf("fill %s: %w", d.Dir, err)
	}
	return nil
}

// MakeRoom frees the blocks that Fill allocated, unless another caller has already freed them.
func (d *Disk) MakeRoom() error {
	if err := os.Remove(d.filler()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Freezes reports whether the disk can be stalled.
func (d *Disk) Freezes() bool { return d.freeze() == nil && d.Thaw() == nil }

// Stall blocks all writes to the disk until Resume was called as often as Stall.
func (d *Disk) Stall() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.freezes == 0 {
		if err := d.freeze(); err != nil {
			return err
		}
	}
	d.mu.freezes++
	return nil
}

// Resume ends a Stall.
func (d *Disk) Resume() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.freezes--; d.mu.freezes > 0 {
		return nil
	}
	return d.Thaw()
}

// Stutter describes the stalls of a disk: the disk stalls for Still, then works for Works, and so
// on. If Works is 0, the disk stalls once.
type Stutter struct{ Still, Works time.Duration }

// StallFor stalls the disk until hold has passed or done is closed. In the end the disk is always
// thawed.
func (d *Disk) StallFor(s Stutter, hold time.Duration, done <-chan struct{}) error {
	over := time.NewTimer(hold)
	defer over.Stop()
	for {
		if err := d.Stall(); err != nil {
			return err
		}
		ended := wait(s.Still, over.C, done)
		if err := d.Resume(); err != nil {
			return err
		}
		if ended || s.Works == 0 || wait(s.Works, over.C, done) {
			return nil
		}
	}
}

// wait waits for d. It reports whether over or done ended the wait early.
func wait(d time.Duration, over <-chan time.Time, done <-chan struct{}) (ended bool) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-over:
		return true
	case <-done:
		return true
	}
}
