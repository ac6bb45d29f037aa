package etcdfile

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

// ErrNoSum says that a file does not end with the SHA-256 of what is before it.
var ErrNoSum = errors.New("the file has no sum at its end, as snapshots of etcd have: it may be " +
	"incomplete, or the file of a member")

// File is a snapshot of etcd that is read: the state at its newest revision. It is for one
// goroutine. Close lets go of the file.
type File struct {
	// Revision is the newest of the snapshot.
	Revision uint64
	// Sum is the SHA-256 of its content.
	Sum [sha256.Size]byte
	// Leases are by ascending id, as unsigned numbers.
	Leases []Lease
	// Users and Roles are by ascending name, and Auth says that they count.
	Users []User
	Roles []Role
	Auth  bool

	file *os.File
	// entries are by ascending key. names has the keys.
	entries []entry
	names   []byte
}

// Lease is a lease of a snapshot. Left is how many seconds it had left at its last checkpoint; 0:
// its full term.
type Lease struct {
	ID        int64
	TTL, Left uint64
}

// User is a user of a snapshot.
type User struct {
	Name string
	// Hash is that of the password, by bcrypt; empty: there is none.
	Hash  []byte
	Roles []string
}

// Role is a role of a snapshot.
type Role struct {
	Name        string
	Permissions []*authpb.Permission
	// Keyspaces is what it may do with the data of keyspaces, which are known by the ids that they
	// have in the cluster of the file. Snapshots of etcd have nothing of that.
	Keyspaces []*storepb.KeyspacePermission
}

// Key is what a snapshot has of a key. KV.Version is 0 if it was deleted at File.Revision; keys
// that were deleted earlier are left out. Number says which change of its revision it is.
type Key struct {
	KV     *mvccpb.KeyValue
	Number uint32
}

// entry is where the newest version of a key is.
type entry struct {
	name, offset     int64
	nameSize, size   uint32
	number           uint32
	deleted, current bool // current: it is of the newest revision
}

// Options are those of Open.
type Options struct {
	// WithoutSum has files read that have no sum at their end.
	WithoutSum bool
	// Progress is told now and then how many bytes were read; the file is read twice before Open
	// returns.
	Progress func(bytes uint64)
}

// Open opens a snapshot, checks its sum, and finds what it has: memory takes each key, and some 100
// bytes for it. ErrDamaged, or ErrNoSum, says that it is none.
func Open(ctx context.Context, path string, o Options) (f *File, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	if o.Progress == nil {
		o.Progress = func(uint64) {}
	}
	f = &File{file: file}
	size, err := f.verify(ctx, info.Size(), o)
	if err != nil {
		return nil, err
	}
	p, err := openPages(file, size)
	if err != nil {
		return nil, err
	}
	s := &scan{File: f, ctx: ctx, progress: o.Progress, passed: uint64(size),
		newest: newIndex()}
	if err := s.run(p); err != nil {
		return nil, err
	}
	return f, nil
}

// verify sums the content up, and returns how long it is.
func (f *File) verify(ctx context.Context, size int64, o Options) (int64, error) {
	content, hasSum := size, false
	switch {
	case size%512 == sha256.Size:
		content, hasSum = size-sha256.Size, true
	case !o.WithoutSum:
		return 0, ErrNoSum
	}
	sum := sha256.New()
	const piece = 4 << 20
	for done := int64(0); done < content; {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := io.CopyN(sum, f.file, min(piece, content-done))
		if err != nil {
			return 0, err
		}
		done += n
		o.Progress(uint64(done))
	}
	sum.Sum(f.Sum[:0])
	if hasSum {
		var want [sha256.Size]byte
		if _, err := io.ReadFull(f.file, want[:]); err != nil {
			return 0, err
		}
		if want != f.Sum {
			return 0, damaged("its sum is not that at its end")
		}
	}
	return content, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// Len is how many keys it has, those included that were deleted at the newest revision.
func (f *File) Len() int { return len(f.entries) }

func (f *File) name(i int) []byte {
	e := &f.entries[i]
	return f.names[e.name : e.name+int64(e.nameSize)]
}

// Search is the number of the first key above the given one.
func (f *File) Search(above []byte) int {
	at, found := slices.BinarySearchFunc(f.entries, above, func(e entry, key []byte) int {
		return bytes.Compare(f.names[e.name:e.name+int64(e.nameSize)], key)
	})
	if found {
		at++
	}
	return at
}

// Size is about how large the nth key is with its value.
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

// sort brings the entries in the order of their keys, without those that were deleted before the
// newest revision, and numbers the changes of that one.
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
