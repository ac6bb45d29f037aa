package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/placement/guard"
)

// ErrDirectory is wrapped by all errors that say that a data directory cannot be used as it is.
var ErrDirectory = errors.New("the data directory cannot be used")

const (
	// directoryFormat is the layout of a data directory, and guardedFormat that of one whose server
	// has to follow users and roles: earlier programs, which would serve all clients, refuse it.
	directoryFormat = 1
	guardedFormat   = 2
)

const identityFile = "server.json"

// identity is which server has this data directory.
type identity struct {
	Format int `json:"format"`
	// Server is random, chosen when the directory was made: a wiped or copied directory is another
	// server.
	Server hexID `json:"server"`
	// Cluster is 0 until the server knows which one it belongs to.
	Cluster hexID `json:"cluster,omitempty"`
	// Node is the data node's id, 0 until the core has given it one and its databases are there.
	Node uint64 `json:"node,omitempty"`
	// Address is where the core last registered that node. A directory that turns up at another
	// address may be a copy of one that is in use: it has to ask the core before it does anything.
	Address string `json:"address,omitempty"`
	// Core is set once the databases of the core's member are there, before it has promised
	// anything. Earlier versions did not.
	Core bool `json:"core,omitempty"`
	// Members are the addresses of the core's members, as the core told last, with commas between
	// them: they are asked beside those of --core, which may be outdated.
	Members string `json:"members,omitempty"`
	// GuardVersion and Guards are whether the server has to follow users and roles; see guard.Mark.
	GuardVersion uint64 `json:"guard_version,omitempty"`
	Guards       bool   `json:"guards,omitempty"`
}

// members lists the addresses of the core's members that were known last.
func (id *identity) members() []string {
	if id.Members == "" {
		return nil
	}
	return strings.Split(id.Members, ",")
}

// hexID is printed as hexadecimal digits: JSON's numbers do not hold 64 bits.
type hexID uint64

func (id hexID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

func (id hexID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

func (id *hexID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*id = hexID(n)
	return err
}

// directory is a locked data directory.
type directory struct {
	fs   vfs.FS
	path string
	lock io.Closer

	// mu is held while the identity is written: the core's member and the data node of one server
	// learn of their cluster at the same time.
	mu sync.Mutex
	id identity // guarded by mu
}

// identity is which server it is at this moment.
func (d *directory) identity() identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.id
}

// openDirectory locks a data directory, which it makes if it is not there, and reads what server it
// belongs to.
func openDirectory(fs vfs.FS, path string, random func() uint64) (_ *directory, err error) {
	d := &directory{fs: fs, path: path}
	if err := makeDir(fs, path); err != nil {
		return nil, err
	}
	d.lock, err = fs.Lock(fs.PathJoin(path, "LOCK"))
	if err != nil {
		if opening := new(os.PathError); errors.As(err, &opening) {
			return nil, fmt.Errorf("%w: the file LOCK in %s cannot be written: %w", ErrDirectory,
				path, opening.Err)
		}
		return nil, fmt.Errorf("%w: %s is in use by another process; a directory belongs to one "+
			"server, stop that process or choose another directory", ErrDirectory, path)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.lock.Close())
		}
	}()
	b, err := d.read()
	switch {
	case errors.Is(err, os.ErrNotExist):
		if err := d.mustBeEmpty(); err != nil {
			return nil, err
		}
		d.id = identity{Format: directoryFormat, Server: hexID(random() | 1)}
		return d, d.save()
	case err != nil:
		return nil, fmt.Errorf("%w: reading %s in %s: %w", ErrDirectory, identityFile, path, err)
	}
	if err = json.Unmarshal(b, &d.id); err == nil && d.id.Server == 0 {
		err = errors.New("no server id")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s in %s is damaged (%w); without it nothing says whose data "+
			"this is: restore the file, or move the directory away and start with an empty one",
			ErrDirectory, identityFile, path, err)
	}
	if d.id.Format > guardedFormat {
		return nil, fmt.Errorf("%w: %s was written by a newer version (format %d, this program "+
			"knows up to %d); start the newer program again",
			ErrDirectory, path, d.id.Format, guardedFormat)
	}
	return d, nil
}

// makeDir makes a directory, and those above it, if they are not there, so that they outlive a
// power failure: otherwise a server could promise something in its directory, and find the
// directory gone.
func makeDir(fs vfs.FS, path string) error {
	var above []string
	for dir := path; ; {
		if _, err := fs.Stat(dir); err == nil {
			break
		}
		parent := fs.PathDir(dir)
		above = append(above, parent)
		if parent == dir {
			break
		}
		dir = parent
	}
	err := fs.MkdirAll(path, 0o755)
	for _, dir := range above {
		if err == nil {
			err = syncDir(fs, dir)
		}
	}
	if failed := new(os.PathError); errors.As(err, &failed) {
		err = failed.Err // it names the path once more
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be made: %w", ErrDirectory, path, err)
	}
	return nil
}

func syncDir(fs vfs.FS, path string) error {
	dir, err := fs.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (d *directory) read() ([]byte, error) {
	f, err := d.fs.Open(d.fs.PathJoin(d.path, identityFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<16))
}

// mustBeEmpty refuses a directory with data but without its identity.
func (d *directory) mustBeEmpty() error {
	names, err := d.fs.List(d.path)
	if err != nil {
		return fmt.Errorf("%w: listing %s: %w", ErrDirectory, d.path, err)
	}
	for _, name := range names {
		switch name {
		case "LOCK", identityFile + ".new", "lost+found":
			continue
		}
		return fmt.Errorf("%w: %s is not empty and has no %s; it is not a data directory of "+
			"Tidemark", ErrDirectory, d.path, identityFile)
	}
	return nil
}

// save writes the identity so that a crash leaves the old one or the new one.
func (d *directory) save() error {
	if d.id.Format = directoryFormat; d.id.Guards {
		d.id.Format = guardedFormat
	}
	b, err := json.MarshalIndent(d.id, "", "  ")
	if err != nil {
		return err
	}
	if err := d.replaceFile(identityFile, append(b, '\n')); err != nil {
		return fmt.Errorf("%w: writing %s in %s: %w", ErrDirectory, identityFile, d.path, err)
	}
	return nil
}

// replaceFile writes a file of the directory so that a crash leaves the old one or the new one.
func (d *directory) replaceFile(name string, content []byte) error {
	fresh := d.fs.PathJoin(d.path, name+".new")
	f, err := d.fs.Create(fresh, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.fs.Rename(fresh, d.fs.PathJoin(d.path, name))
	}
	if err == nil {
		err = syncDir(d.fs, d.path)
	}
	return err
}

// join notes the cluster that the server belongs to; it never changes afterwards.
func (d *directory) join(cluster uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.id.Cluster {
	case hexID(cluster):
		return nil
	case 0:
		d.id.Cluster = hexID(cluster)
		return d.save()
	}
	return fmt.Errorf("%w: %s belongs to cluster %s, but the core that was named with --core is "+
		"of cluster %s; name the right core, or choose another directory",
		ErrDirectory, d.path, d.id.Cluster, hexID(cluster))
}

// becomeCore notes that the databases of the core's member are there: from now on they have to be.
func (d *directory) becomeCore() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Core {
		return nil
	}
	d.id.Core = true
	return d.save()
}

// knowsMembers notes the addresses of the core's members.
func (d *directory) knowsMembers(addresses []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := strings.Join(addresses, ",")
	if d.id.Members == text {
		return nil
	}
	d.id.Members = text
	return d.save()
}

// guards notes whether the server has to follow users and roles.
func (d *directory) guards(m guard.Mark) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.id.GuardVersion, d.id.Guards = m.Version, m.On
	return d.save()
}

// becomeNode notes the id that the core gave to the data node, and where. The node's databases are
// there, and have to be from now on.
func (d *directory) becomeNode(node uint64, address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id.Node == node && d.id.Address == address {
		return nil
	}
	if d.id.Node != 0 && d.id.Node != node {
		return fmt.Errorf("%w: %s belongs to node %d, but the core calls it node %d", ErrDirectory,
			d.path, d.id.Node, node)
	}
	d.id.Node, d.id.Address = node, address
	return d.save()
}

func (d *directory) sub(elem ...string) string {
	return d.fs.PathJoin(append([]string{d.path}, elem...)...)
}

func (d *directory) close() error { return d.lock.Close() }
