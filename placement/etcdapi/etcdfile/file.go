package etcdfile

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"os"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// File is an opened snapshot of etcd: the state at its newest revision. It is for one goroutine.
// Close closes the file.
type File struct {
	// Revision is the newest revision of the snapshot.
	Revision uint64
	// Sum is the SHA-256 of its content.
	Sum [sha256.Size]byte
	// Leases are sorted by id, as unsigned numbers.
	Leases []Lease
	// Users and Roles are sorted by name; Auth reports that authentication is enabled.
	Users []User
	Roles []Role
	Auth  bool

	file *os.File
	// entries are sorted by key. names holds the keys.
	entries []entry
	names   []byte
}

// Lease is a lease of a snapshot. Left is the number of seconds that it had left at its last
// checkpoint; 0: its full term.
type Lease struct {
	ID        int64
	TTL, Left uint64
}

// User is a user of a snapshot.
type User struct {
	Name string
	// Hash is the bcrypt hash of the password; empty: there is none.
	Hash  []byte
	Roles []string
}

// Role is a role of a snapshot.
type Role struct {
	Name        string
	Permissions []*authpb.Permission
	// Keyspaces are its rights to the data of keyspaces, which are identified by their ids in the
	// cluster of the file. Snapshots of etcd have none.
	Keyspaces []*storepb.KeyspacePermission
}

// Key is the newest version of a key in a snapshot. KV.Version is 0 if the key was deleted at
// File.Revision; keys that were deleted earlier are left out. Number is the number of the change
// within its revision.
type Key struct {
	KV     *mvccpb.KeyValue
	Number uint32
}

// entry locates the newest version of a key.
type entry struct {
	name, offset     int64
	nameSize, size   uint32
	number           uint32
	deleted, current bool // current: the version has the newest revision
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Len returns the number of keys, including those deleted at the newest revision.
func (f *File) Len() int { return len(f.entries) }

func (f *File) name(i int) []byte {
	e := &f.entries[i]
	return f.names[e.name : e.name+int64(e.nameSize)]
}

// Search returns the index of the first key above the given one.
func (f *File) Search(above []byte) int {
	at, found := slices.BinarySearchFunc(f.entries, above, func(e entry, key []byte) int {
		return bytes.Compare(f.names[e.name:e.name+int64(e.nameSize)], key)
	})
	if found {
		at++
	}
	return at
}

// Size estimates the size of the nth key with its value.
func (f *File) Size(n int) int { return int(f.entries[n].size) }

// Key reads the nth key, in ascending order, from 0 on.
func (f *File) Key(n int) (Key, error) {
	e := &f.entries[n]
	data := make([]byte, e.size)
	if _, err := f.file.ReadAt(data, e.offset); err != nil {
		return Key{}, fmt.Errorf("key %q: %w", f.name(n), err)
	}
	k := Key{KV: &mvccpb.KeyValue{}, Number: e.number}
	if err := proto.Unmarshal(data, k.KV); err != nil || !bytes.Equal(k.KV.Key, f.name(n)) {
		return Key{}, damaged("it has changed: key %q is not where it was", f.name(n))
	}
	if e.deleted {
		k.KV = &mvccpb.KeyValue{Key: k.KV.Key, ModRevision: int64(f.Revision)}
	}
	return k, nil
}

// sort sorts the entries by their keys, drops those deleted before the newest revision, and numbers
// the changes of that revision.
func (f *File) sort() error {
	f.entries = slices.DeleteFunc(f.entries, func(e entry) bool { return e.deleted && !e.current })
	var current []*entry
	for i := range f.entries {
		if f.entries[i].current {
			current = append(current, &f.entries[i])
		}
	}
	slices.SortFunc(current, func(a, b *entry) int { return cmp.Compare(a.number, b.number) })
	if len(current) > math.MaxUint32 {
		return damaged("it has too many changes at revision %d", f.Revision)
	}
	for i, e := range current {
		e.number = uint32(i)
	}
	slices.SortFunc(f.entries, func(a, b entry) int {
		return bytes.Compare(f.names[a.name:a.name+int64(a.nameSize)],
			f.names[b.name:b.name+int64(b.nameSize)])
	})
	return nil
}
