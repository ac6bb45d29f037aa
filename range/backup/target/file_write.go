package target

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

const (
	// temporaryMark is in the names of temporary files, and not in those of objects.
	temporaryMark = "~"
	// maxDurable bounds fileTarget.mu.durable.
	maxDurable = 4096
	// folderAttempts is how often a write makes its folder again when a Delete elsewhere has just
	// removed it.
	folderAttempts = 100
	// writeStep is how many bytes are written between two looks at the context.
	writeStep = 1 << 20
)

// Steps of a write, for fileTarget.before.
const (
	stepMake    = "make the file"
	stepWrite   = "write a part of it"
	stepSync    = "sync the file"
	stepPublish = "give it its name"
	stepRemove  = "remove the temporary name"
	stepFolder  = "sync the folder"
)

// step does a step of a write.
func (t *fileTarget) step(step, path string, do func() error) error {
	if t.before != nil {
		if err := t.before(step, path); err != nil {
			return err
		}
	}
	return do()
}

// Put implements Target.
func (t *fileTarget) Put(ctx context.Context, name string, data []byte) error {
	return t.write(ctx, "put", name, data, os.Rename)
}

// Create implements Target.
func (t *fileTarget) Create(ctx context.Context, name string, data []byte) error {
	err := t.write(ctx, "create", name, data, t.linkNew)
	if errors.Is(err, errNoLinks) {
		return &failure{t.String(), "create", name, ErrRefused, err, "the file system has no hard " +
			"links, by which one of several writers wins; use another file system or an object store"}
	}
	return err
}

// errNoLinks is returned by linkNew on file systems such as FAT.
var errNoLinks = errors.New("cannot make a hard link")

// linkNew gives a temporary file its final name, unless there is a file of that name.
func (t *fileTarget) linkNew(temporary, final string) error {
	err := os.Link(temporary, final)
	switch {
	case errors.Is(err, fs.ErrExist):
		// A file server may have lost the answer to an attempt that had succeeded.
		mine, err1 := os.Lstat(temporary)
		theirs, err2 := os.Lstat(final)
		if err1 != nil || err2 != nil || !os.SameFile(mine, theirs) {
			return ErrExists
		}
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOTSUP),
		errors.Is(err, syscall.ENOSYS):
		return errors.Join(errNoLinks, err)
	case err != nil:
		return err
	}
	// The object is there; if the other name stays, Sweep removes it.
	_ = t.step(stepRemove, temporary, func() error { return os.Remove(temporary) })
	return nil
}

// write writes an object under a temporary name, and then has publish give it its final one. No
// step leaves a part under the final name; a crash before the end may leave the temporary file.
func (t *fileTarget) write(
	ctx context.Context, operation, name string, data []byte,
	publish func(temporary, final string) error,
) error {
	if err := checkObject(name, data); err != nil {
		return err
	}
	if err := ended(ctx, t.String(), operation, name); err != nil {
		return err
	}
	final := t.path(name)
	dir := filepath.Dir(final)
	f, err := t.temporary(dir, final)
	if err != nil {
		return t.failed(operation, name, err)
	}
	for rest := data; err == nil && len(rest) > 0; {
		if err = ended(ctx, t.String(), operation, name); err == nil {
			part := rest[:min(len(rest), writeStep)]
			err = t.step(stepWrite, f.Name(), func() error {
				_, err := f.Write(part)
				return err
			})
			rest = rest[len(part):]
		}
	}
	if err == nil {
		err = t.step(stepSync, f.Name(), f.Sync)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = ended(ctx, t.String(), operation, name)
	}
	if err == nil {
		err = t.step(stepPublish, final, func() error { return publish(f.Name(), final) })
	}
	if err != nil {
		_ = t.step(stepRemove, f.Name(), func() error { return os.Remove(f.Name()) })
		var whole *failure
		switch {
		case errors.As(err, &whole):
			return whole
		case errors.Is(err, ErrExists):
			return &failure{target: t.String(), operation: operation, name: name, class: ErrExists}
		}
		return t.failed(operation, name, err)
	}
	if err = t.step(stepFolder, dir, func() error { return syncDirectory(dir) }); err != nil {
		return t.failed(operation, name, err)
	}
	return nil
}

// temporary makes a file in a folder, which it makes if there is none.
func (t *fileTarget) temporary(dir, final string) (*os.File, error) {
	for attempt := 1; ; attempt++ {
		if err := t.makeDirectory(dir); err != nil {
			return nil, err
		}
		// The folder is not empty any more once the file is there: no Delete removes it.
		var f *os.File
		path := final + temporaryMark + rand.Text()
		err := t.step(stepMake, path, func() (err error) {
			f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			return err
		})
		if !errors.Is(err, fs.ErrNotExist) || attempt == folderAttempts {
			return f, err
		}
		t.forget(dir)
	}
}

// makeDirectory makes a directory, and the ones above it up to the root, if they are not there.
// Each is synced into the one above, unless this target has done so before. The directory above the
// root must be there: a file system that is not mounted is not taken for an empty target.
func (t *fileTarget) makeDirectory(dir string) error {
	if t.isDurable(dir) {
		return nil
	}
	above := filepath.Dir(dir)
	if dir != t.root {
		if err := t.makeDirectory(above); err != nil {
			return err
		}
	}
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) && dir != t.root {
			// A Delete was faster; the caller finds out when it makes its file.
			t.forget(above)
			return nil
		}
		return err
	}
	if made := err == nil; made || dir != t.root {
		if err := syncDirectory(above); err != nil && !missing(err) {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.mu.durable) >= maxDurable {
		clear(t.mu.durable)
	}
	t.mu.durable[dir] = struct{}{}
	return nil
}

func (t *fileTarget) isDurable(dir string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.mu.durable[dir]
	return ok
}

// forget has makeDirectory look again at a directory that was removed, and at those above it.
func (t *fileTarget) forget(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; len(dir) > len(t.root); dir = filepath.Dir(dir) {
		delete(t.mu.durable, dir)
	}
}

// syncDirectory makes the names in a directory durable. Some network file systems cannot sync a
// directory, and need not.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, d.Close())
}
