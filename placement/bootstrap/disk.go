package bootstrap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/bootstrap/bootstrappb"
)

// The file: magic, format, length (4 bytes), content, CRC-32C of all before. It is replaced, never
// changed.
const (
	fileName     = "BOOTSTRAP"
	fileMagic    = "TMBS"
	fileFormat   = 1
	maxFileBytes = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Disk stores a server's state in the forming of its core. Its methods are called one at a time.
type Disk interface {
	// Load returns the state stored last; nil if there is none.
	Load() (*bootstrappb.State, error)
	// Store replaces the state. When it returns nil, a crash leaves the new state; if it fails or
	// the process dies, the old or the new one.
	Store(*bootstrappb.State) error
}

// FileDisk is a Disk in one file of a directory, which must exist.
type FileDisk struct {
	FS  vfs.FS
	Dir string
}

// Load implements Disk.
func (d FileDisk) Load() (*bootstrappb.State, error) {
	path := d.FS.PathJoin(d.Dir, fileName)
	f, err := d.FS.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	state, err := decodeState(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return state, nil
}

// Store implements Disk.
func (d FileDisk) Store(s *bootstrappb.State) error {
	data, err := encodeState(s)
	if err != nil {
		return err
	}
	path := d.FS.PathJoin(d.Dir, fileName)
	if err := d.replace(path, data); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func (d FileDisk) replace(path string, data []byte) error {
	f, err := d.FS.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.FS.Rename(path+".new", path); err != nil {
		return err
	}
	// The directory may be as new as the file.
	return errors.Join(d.syncDir(d.Dir), d.syncDir(d.FS.PathDir(d.Dir)))
}

func (d FileDisk) syncDir(path string) error {
	dir, err := d.FS.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func encodeState(s *bootstrappb.State) ([]byte, error) {
	content, err := proto.Marshal(s)
	if err != nil {
		return nil, err
	}
	data := append([]byte(fileMagic), fileFormat)
	data = binary.BigEndian.AppendUint32(data, uint32(len(content)))
	data = append(data, content...)
	return binary.BigEndian.AppendUint32(data, crc32.Checksum(data, castagnoli)), nil
}

func decodeState(data []byte) (*bootstrappb.State, error) {
	const head = len(fileMagic) + 1 + 4
	switch {
	case len(data) < head+4 || string(data[:len(fileMagic)]) != fileMagic:
		return nil, fmt.Errorf("%w: it is too short, or something else", ErrState)
	case data[len(fileMagic)] != fileFormat:
		return nil, fmt.Errorf("%w: it has format %d, this version knows %d; a newer version "+
			"wrote it", ErrState, data[len(fileMagic)], fileFormat)
	case uint64(len(data)) != uint64(head)+uint64(binary.BigEndian.Uint32(data[head-4:]))+4:
		return nil, fmt.Errorf("%w: it has %d bytes", ErrState, len(data))
	case crc32.Checksum(data[:len(data)-4], castagnoli) !=
		binary.BigEndian.Uint32(data[len(data)-4:]):
		return nil, fmt.Errorf("%w: its sum is wrong", ErrState)
	}
	s := &bootstrappb.State{}
	if err := proto.Unmarshal(data[head:len(data)-4], s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrState, err)
	}
	if s.Server == 0 || (s.Founded && s.Accepted == nil) {
		return nil, fmt.Errorf("%w: it has no server, or a founded core without members", ErrState)
	}
	if (s.Joined != nil) != (s.Replica != 0) || s.Joined != nil && s.Joined.Cluster == 0 {
		return nil, fmt.Errorf("%w: it was added to a core as member %d of cluster %016x", ErrState,
			s.Replica, s.Joined.GetCluster())
	}
	for _, f := range []*bootstrappb.Founding{s.Proposed, s.Accepted} {
		if f == nil {
			continue
		}
		if err := validate(fromDisk(f)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
	}
	return s, nil
}
