package engine

import (
	"github.com/cockroachdb/pebble/v2/vfs"
)

// A new WAL file of the Log is filled with zeros before its first record. A sync of bytes that
// overwrite allocated and written blocks touches the data alone; a sync of an append also commits
// the filesystem's journal for the new size and the new blocks, which takes twice as long. Pebble
// recycles WAL files, so only the first two or three files of a log are filled. Zeros at the end
// are nothing new to Pebble, which finds them in preallocated WALs too: they end the replay.

// fillZeros is the source of the zeros; it is never changed.
var fillZeros [256 << 10]byte

// fill writes size zeros at the beginning of an empty file, without moving the position of the next
// write. It is an optimisation: its errors are ignored.
func fill(f vfs.File, size int64) {
	for at := int64(0); at < size; at += int64(len(fillZeros)) {
		if _, err := f.WriteAt(fillZeros[:min(size-at, int64(len(fillZeros)))], at); err != nil {
			return
		}
	}
	_ = f.Sync()
}

// fillSize returns how far a WAL is written before it is replaced: a memtable holds about as much
// as its WAL.
func fillSize(o Options, k kind) int64 {
	if k != kindLog || vfs.Root(o.FS) != vfs.Default {
		return 0
	}
	return int64(o.MemTableBytes)
}

// roomFor reports whether a disk has so much free space that filling a file does no harm.
func roomFor(fs vfs.FS, name string, size int64) bool {
	usage, err := fs.GetDiskUsage(fs.PathDir(name))
	return err == nil && usage.AvailBytes > uint64(size)
}
