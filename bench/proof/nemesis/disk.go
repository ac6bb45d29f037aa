package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/faults"
)

// diskMegabytes is the size of a server's disk. Nothing of it is taken from the machine before it
// is written.
const diskMegabytes = 768

// minFree is what servers are told to keep free of it.
const minFree = "32MiB"

// disk is a small filesystem of a server's own.
type disk struct {
	*faults.Disk

	mu struct {
		sync.Mutex
		// freezes counts the faults that stall the disk at present: the kernel knows only one.
		freezes int
	}
}

// mountDisks makes a disk for each of the names below dir. faults.ErrNoMount says that this
// machine, or user, cannot.
func mountDisks(dir string, names []string) ([]*disk, error) {
	var disks []*disk
	for _, name := range names {
		d, err := faults.MountDisk(dir, name, diskMegabytes)
		if err != nil {
			return nil, errors.Join(err, unmountBelow(dir))
		}
		disks = append(disks, &disk{Disk: d})
	}
	return disks, nil
}

// have is what can be done to these disks.
func have(disks []*disk) need {
	switch {
	case len(disks) == 0:
		return 0
	case disks[0].freeze() != nil:
		return needDisk
	case disks[0].thaw() != nil:
		return needDisk
	default:
		return needDisk | needFreeze
	}
}

func (d *disk) ballast() string { return filepath.Join(d.Dir, "ballast") }

// fill leaves no room on the disk.
func (d *disk) fill() error {
	file, err := os.Create(d.ballast())
	if err != nil {
		return fmt.Errorf("fill %s: %w", d.Dir, err)
	}
	if err := errors.Join(reserve(file, diskMegabytes<<20), file.Close()); err != nil {
		return fmt.Errorf("fill %s: %w", d.Dir, err)
	}
	return nil
}

// empty removes what fill made, if another fault has not done so.
func (d *disk) empty() error {
	if err := os.Remove(d.ballast()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// hold stalls the disk until as many calls of letGo.
func (d *disk) hold() error {
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

func (d *disk) letGo() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.freezes--; d.mu.freezes > 0 {
		return nil
	}
	return d.thaw()
}

// unmountBelow thaws and unmounts everything that is mounted below a directory; the processes that
// use it must have ended.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return nil // no such list: nothing that this program could have mounted
	}
	var failures []error
	for _, mount := range mountsBelow(string(mounts), dir) {
		d := &disk{Disk: &faults.Disk{Dir: mount}}
		_ = d.thaw() // it mostly is not frozen
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

// stutter is how a disk stalls: for still, then it works for works, and so on. works of 0: it
// stalls once.
type stutter struct{ still, works time.Duration }

// stop stalls the disk until it has lasted for hold, or done is closed. It always ends thawed.
func (d *disk) stop(s stutter, hold time.Duration, done <-chan struct{}) error {
	over := time.NewTimer(hold)
	defer over.Stop()
	for {
		if err := d.hold(); err != nil {
			return err
		}
		ended := wait(s.still, over.C, done)
		if err := d.letGo(); err != nil {
			return err
		}
		if ended || s.works == 0 || wait(s.works, over.C, done) {
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
