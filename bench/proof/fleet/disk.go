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
	// Dir is where it is mounted.
	Dir string
	// Kind is "ext4 on a loop device" or "tmpfs".
	Kind string

	mu struct {
		sync.Mutex
		// freezes counts the callers that stall the disk at present: the kernel knows only one.
		freezes int
	}
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

// UnmountBelow thaws and unmounts everything that is mounted below a directory. The processes that
// use it must have ended.
func UnmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil // no such list: nothing that this program could have mounted
	}
	var failures []error
	for _, mount := range mountsBelow(string(mounts), dir) {
		d := &Disk{Dir: mount}
		_ = d.Thaw() // it mostly is not frozen
		failures = append(failures, d.Unmount())
	}
	return errors.Join(failures...)
}

// mountsBelow finds in a list in the format of /proc/mounts what is mounted below a directory.
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

// Unmount takes the filesystem away. The processes that use it must have ended.
func (d *Disk) Unmount() error {
	// A process that was just killed may hold the mount for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return process.Until(ctx, "unmount "+d.Dir, 100*time.Millisecond,
		func(context.Context) error { return syscall.Unmount(d.Dir, 0) })
}

func (d *Disk) filler() string { return filepath.Join(d.Dir, "filler") }

// Fill takes all blocks that are free.
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

// MakeRoom gives back what Fill took, if something else has not done so.
func (d *Disk) MakeRoom() error {
	if err := os.Remove(d.filler()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Freezes says whether the disk can be stalled.
func (d *Disk) Freezes() bool { return d.freeze() == nil && d.Thaw() == nil }

// Stall has all writes to the disk wait until as many calls of Resume.
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

// Stutter is how a disk stalls: for Still, then it works for Works, and so on. Works of 0: it
// stalls once.
type Stutter struct{ Still, Works time.Duration }

// StallFor stalls the disk until it has lasted for hold, or done is closed. It always ends thawed.
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

// wait says whether something ended it before its time.
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
