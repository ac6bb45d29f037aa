package datadir

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

	"github.com/tidemarkdb/tidemark/deploy/embedded/releasemark"
	"github.com/tidemarkdb/tidemark/placement/authcache"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// ErrUnusable is wrapped by all errors which say that a data directory cannot be used as it is.
var ErrUnusable = errors.New("the data directory cannot be used")

const (
	// Format is the layout of a data directory. A directory has GuardedFormat if its server must
	// follow users and roles: a program that does not know users would serve all clients, and must
	// refuse this format. A directory has LeveledFormat if it has recorded a level of formats and
	// messages: a program that does not know levels must refuse this format. Later levels need no
	// further formats, because programs that know levels compare them (MustSupport).
	Format        = 1
	GuardedFormat = 2
	LeveledFormat = 3
)

// The parts of a server, each with its own directory: the member of the core, and the data node.
const (
	Core = "core"
	Node = "node"
)

const IdentityFile = "server.json"

// Identity says to which server a data directory belongs.
type Identity struct {
	Format int `json:"format"`
	// Server is random, chosen when the directory was made: a wiped or copied directory is another
	// server.
	Server HexID `json:"server"`
	// Cluster is the cluster that the server belongs to, or 0 until it is known.
	Cluster HexID `json:"cluster,omitempty"`
	// Node is the data node's id. It is 0 until the core has given the node an id and the node's
	// databases exist.
	Node uint64 `json:"node,omitempty"`
	// Address is the address at which the core last registered the node. If a directory appears at
	// another address, it may be a copy of a directory that is in use: its server must ask the core
	// before it does anything.
	Address string `json:"address,omitempty"`
	// Core is set once the databases of the core's member exist, before the member has made any
	// promise. Earlier versions did not set it.
	Core bool `json:"core,omitempty"`
	// MemberList has the last known addresses of the core's members, separated by commas. The server
	// asks them in addition to those of --core, which may be outdated.
	MemberList string `json:"members,omitempty"`
	// LevelNoted is the highest level of formats and messages that was coming or active. Level is the
	// active level. Both are as the server knows them; see releasemark.Levels. They are 0 in a
	// directory that was used only by versions without levels.
	LevelNoted uint32 `json:"level_noted,omitempty"`
	Level      uint32 `json:"level,omitempty"`
	// GuardVersion and Guards say whether the server must follow users and roles; see
	// authcache.Flag.
	GuardVersion uint64 `json:"guard_version,omitempty"`
	Guards       bool   `json:"guards,omitempty"`
}

// Members lists the last known addresses of the core's members.
func (id *Identity) Members() []string {
	if id.MemberList == "" {
		return nil
	}
	return strings.Split(id.MemberList, ",")
}

// HexID is an id that is written as hexadecimal digits, because numbers in JSON do not hold 64
// bits.
type HexID uint64

func (id HexID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

func (id HexID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

func (id *HexID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	*id = HexID(n)
	return err
}

// Directory is a locked data directory.
type Directory struct {
	FS   vfs.FS
	Path string
	lock io.Closer

	// mu is held while the identity is written: the core's member and the data node of a server learn
	// of their cluster at the same time.
	mu sync.Mutex
	ID Identity // guarded by mu
}

// Identity returns the present identity.
func (d *Directory) Identity() Identity {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ID
}

// Open locks a data directory and reads its identity. It creates the directory if it does not
// exist.
func Open(fs vfs.FS, path string, random func() uint64) (_ *Directory, err error) {
	d := &Directory{FS: fs, Path: path}
	if err := MakeDir(fs, path); err != nil {
		return nil, err
	}
	d.lock, err = fs.Lock(fs.PathJoin(path, "LOCK"))
	if err != nil {
		if opening := new(os.PathError); errors.As(err, &opening) {
			return nil, fmt.Errorf("%w: the file LOCK in %s cannot be written: %w", ErrUnusable,
				path, opening.Err)
		}
		return nil, fmt.Errorf("%w: %s is in use by another process; a directory belongs to one "+
			"server, stop that process or choose another directory", ErrUnusable, path)
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
		d.ID = Identity{Format: Format, Server: HexID(random() | 1)}
		return d, d.Save()
	case err != nil:
		return nil, fmt.Errorf("%w: reading %s in %s: %w", ErrUnusable, IdentityFile, path, err)
	}
	if err = json.Unmarshal(b, &d.ID); err == nil && d.ID.Server == 0 {
		err = errors.New("no server id")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s in %s is damaged (%w); without it nothing says whose data "+
			"this is: restore the file, or move the directory away and start with an empty one",
			ErrUnusable, IdentityFile, path, err)
	}
	if d.ID.Format > LeveledFormat {
		return nil, fmt.Errorf("%w: %s was written by a newer version (format %d, this program "+
			"knows up to %d); start the newer program again",
			ErrUnusable, path, d.ID.Format, LeveledFormat)
	}
	return d, nil
}

// MakeDir creates a directory, and its missing parents, so that they survive a power failure.
// Otherwise a server could make a promise in its directory, and the directory could be gone
// afterwards.
func MakeDir(fs vfs.FS, path string) error {
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
		err = failed.Err // the outer error would repeat the path
	}
	if err != nil {
		return fmt.Errorf("%w: %s cannot be made: %w", ErrUnusable, path, err)
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

func (d *Directory) read() ([]byte, error) {
	f, err := d.FS.Open(d.FS.PathJoin(d.Path, IdentityFile))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<16))
}

// mustBeEmpty refuses a directory with data but without an identity.
func (d *Directory) mustBeEmpty() error {
	names, err := d.FS.List(d.Path)
	if err != nil {
		return fmt.Errorf("%w: listing %s: %w", ErrUnusable, d.Path, err)
	}
	for _, name := range names {
		switch name {
		case "LOCK", IdentityFile + ".new", "lost+found":
			continue
		}
		return fmt.Errorf("%w: %s is not empty and has no %s; it is not a data directory of "+
			"Tidemark", ErrUnusable, d.Path, IdentityFile)
	}
	return nil
}

// Save writes the identity. After a crash, the file has the old or the new identity.
func (d *Directory) Save() error {
	switch {
	case d.ID.LevelNoted > 0 || d.ID.Level > 0:
		d.ID.Format = LeveledFormat
	case d.ID.Guards:
		d.ID.Format = GuardedFormat
	default:
		d.ID.Format = Format
	}
	b, err := json.MarshalIndent(d.ID, "", "  ")
	if err != nil {
		return err
	}
	if err := d.ReplaceFile(IdentityFile, append(b, '\n')); err != nil {
		return fmt.Errorf("%w: writing %s in %s: %w", ErrUnusable, IdentityFile, d.Path, err)
	}
	return nil
}

// ReplaceFile writes a file of the directory. After a crash, the file has the old or the new
// content.
func (d *Directory) ReplaceFile(name string, content []byte) error {
	fresh := d.FS.PathJoin(d.Path, name+".new")
	f, err := d.FS.Create(fresh, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = d.FS.Rename(fresh, d.FS.PathJoin(d.Path, name))
	}
	if err == nil {
		err = syncDir(d.FS, d.Path)
	}
	return err
}

// Join records the cluster that the server belongs to. It never changes afterwards.
func (d *Directory) Join(cluster uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.ID.Cluster {
	case HexID(cluster):
		return nil
	case 0:
		d.ID.Cluster = HexID(cluster)
		return d.Save()
	}
	return fmt.Errorf("%w: %s belongs to cluster %s, but the core that was named with --core is "+
		"of cluster %s; name the right core, or choose another directory",
		ErrUnusable, d.Path, d.ID.Cluster, HexID(cluster))
}

// BecomeCore records that the databases of the core's member exist. From now on they must exist.
func (d *Directory) BecomeCore() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ID.Core {
		return nil
	}
	d.ID.Core = true
	return d.Save()
}

// KnowsMembers records the addresses of the core's members.
func (d *Directory) KnowsMembers(addresses []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	text := strings.Join(addresses, ",")
	if d.ID.MemberList == text {
		return nil
	}
	d.ID.MemberList = text
	return d.Save()
}

// SetGuards records whether the server must follow users and roles.
func (d *Directory) SetGuards(m authcache.Flag) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ID.GuardVersion, d.ID.Guards = m.Version, m.On
	return d.Save()
}

// Levels returns the cluster's level as recorded by the server.
func (d *Directory) Levels() releasemark.Levels {
	id := d.Identity()
	return releasemark.Levels{Noted: release.Level(id.LevelNoted), Active: release.Level(id.Level)}
}

// SetLevels records the cluster's level.
func (d *Directory) SetLevels(l releasemark.Levels) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ID.LevelNoted, d.ID.Level = uint32(l.Noted), uint32(l.Active)
	return d.Save()
}

// MustSupport refuses a directory whose server has recorded a level that a program does not
// support.
func (d *Directory) MustSupport(program release.Range) error {
	if err := releasemark.Check(program, d.Levels(), d.Identity().Cluster != 0); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrUnusable, d.Path, err)
	}
	return nil
}

// BecomeNode records the id that the core gave to the data node, and the node's address. The node's
// databases exist, and must exist from now on.
func (d *Directory) BecomeNode(node uint64, address string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ID.Node == node && d.ID.Address == address {
		return nil
	}
	if d.ID.Node != 0 && d.ID.Node != node {
		return fmt.Errorf("%w: %s belongs to node %d, but the core calls it node %d", ErrUnusable,
			d.Path, d.ID.Node, node)
	}
	d.ID.Node, d.ID.Address = node, address
	return d.Save()
}

func (d *Directory) Sub(elem ...string) string {
	return d.FS.PathJoin(append([]string{d.Path}, elem...)...)
}

func (d *Directory) Close() error { return d.lock.Close() }
