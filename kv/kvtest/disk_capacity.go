package kvtest

import (
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SetCapacity bounds the disk to so many bytes: it reports what is left of them, and a write that
// does not fit fails with ENOSPC. 0 is without a bound.
func (d *Disk) SetCapacity(bytes int64) {
	d.count()
	d.capacity.Store(bytes)
}

// Used is how many bytes the files on the disk have together.
func (d *Disk) Used() int64 { return d.count() }

// count adds up the files.
func (d *Disk) count() int64 {
	used := sizeOf(d.Mem(), "/")
	d.used.Store(used)
	return used
}

// sizeOf adds up the files in a directory. What is removed meanwhile does not count.
func sizeOf(fs vfs.FS, dir string) (total int64) {
	names, err := fs.List(dir)
	if err != nil {
		return 0
	}
	for _, name := range names {
		path := fs.PathJoin(dir, name)
		info, err := fs.Stat(path)
		switch {
		case err != nil:
		case info.IsDir():
			total += sizeOf(fs, path)
		default:
			total += info.Size()
		}
	}
	return total
}

// take finds room for a write. What overwrites is counted as if it did not, until the files are
// added up again.
func (d *Disk) take(name string, n int) error {
	d.written.Add(int64(n))
	capacity := d.capacity.Load()
	if capacity == 0 || d.used.Add(int64(n)) <= capacity || d.count()+int64(n) <= capacity {
		return nil
	}
	return &os.PathError{Op: "write", Path: name, Err: syscall.ENOSPC}
}
