//go:build !linux

package engine

import "github.com/cockroachdb/pebble/v2/vfs"

// diskSync syncs a file's data.
type diskSync struct{}

func newDiskSync(vfs.FS) *diskSync { return nil }

// sync is SyncData of a file.
func (*diskSync) sync(f vfs.File) error { return f.SyncData() }

func (*diskSync) close() {}
