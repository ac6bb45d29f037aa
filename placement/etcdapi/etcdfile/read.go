package etcdfile

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNoSum says that a file does not end with the SHA-256 of its content.
var ErrNoSum = errors.New("the file has no sum at its end, as snapshots of etcd have: it may be " +
	"incomplete, or the file of a member")

// Options are the options of Open.
type Options struct {
	// WithoutSum accepts files that have no sum at their end.
	WithoutSum bool
	// Progress is called now and then with the number of bytes read; the file is read twice before
	// Open returns.
	Progress func(bytes uint64)
}

// Open opens a snapshot, checks its sum, and indexes its content: memory takes each key, and some
// 100 bytes more for it. ErrDamaged, or ErrNoSum, says that the file is not a valid snapshot.
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

// verify checks the sum, and returns the length of the content.
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
