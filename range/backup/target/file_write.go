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
	// temporaryMark is part of the names of temporary files. Names of objects do not contain it.
	temporaryMark = "~"
	// maxDurable limits the number of elements of fileTarget.mu.durable.
	maxDurable = 4096
	// folderAttempts is the number of times that a write makes its folder again after a concurrent
	// Delete has removed the folder.
	folderAttempts = 100
	// writeStep is the number of bytes that are written between two checks of the context.
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

// errNoLinks is returned by linkNew on file systems without hard links, such as FAT.
var errNoLinks = errors.New("cannot make a hard link")

// linkNew links a temporary file to its final name. It fails if a file of that name exists.
func (t *fileTarget) linkNew(temporary, final string) error {
	err := os.Link(temporary, final)
	switch {
	case errors.Is(err, fs.ErrExist):
		// The file server may have lost the answer to an attempt that succeeded.
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
	// The object is there. If the temporary name stays, Sweep removes it.
	_ = t.step(stepRemove, temporary, func() error { return os.Remove(temporary) })
	return nil
}

// write writes an object under a temporary name. Then it calls publish, which gives the object its
// final name. No step leaves an incomplete object under the final name. A crash may leave the
// temporary file.
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

// temporary creates a temporary file in a folder. It makes the folder if the folder does not exist.
func (t *fileTarget) temporary(dir, final string) (*os.File, error) {
	for attempt := 1; ; attempt++ {
		if err := t.makeDirectory(dir); err != nil {
			return nil, err
		}
		// Once the file exists, the folder is not empty and no Delete removes it.
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

// makeDirectory makes a directory, and its missing parents up to the root. It syncs each new
// directory into its parent, unless this target has done so before. The parent of the root must
// exist: so a file system that is not mounted is not mistaken for an empty target.
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
			// A concurrent Delete has removed the directory. The caller notices when it creates its file.
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

// forget makes makeDirectory check a removed directory again, and the directories above it.
func (t *fileTarget) forget(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for ; len(dir) > len(t.root); dir = filepath.Dir(dir) {
		delete(t.mu.durable, dir)
	}
}

// syncDirectory makes the names in a directory durable. Some network file systems cannot sync a
// directory, and do not need to.
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
