package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// walNames is a list, on disk, of the WAL files that a Log needs. Pebble replays the WAL files that
// it finds, and does not notice that one is missing or empty. The list makes that a detected
// damage.
//
// The list is a small file (walNamesFile) of two slots. Each change overwrites the older slot and
// syncs it, so that a write that a crash cuts short leaves the former list. A WAL file is named
// with the length and checksum of what its first sync covered.
//
//	created   first record written   synced   named   acknowledged
//	|------ the file may be empty, missing, or full of an old one's bytes ------|
//	                                          |------ it has to be there ------ ... obsolete
//
// INVARIANT: a sync of a WAL file is acknowledged only after the file is named
// (healthFile.SyncData). So a crash never leaves a named file without its first record, and a file
// that is not named holds nothing that was acknowledged. This costs one more sync for each file.
//
// INVARIANT: WAL files become obsolete in the order of their numbers, so when Pebble removes or
// reuses one, all before it are obsolete too. Before a file is removed, it is taken off the list on
// disk. Reusing a file renames it, so its old name disappears at once: therefore the file with the
// lowest number in the list may be missing if there is a file newer than all named ones. No other
// file may: if the list on disk names a file before the reused one, the list is written first.
// (Pebble closes a WAL file, with a sync, before it makes the next one, so the list is written
// between two files that are reused.)
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The list is valid for one run of Pebble, identified by the number of its OPTIONS file, which
// Pebble makes anew whenever it opens the database. A version of this program that does not know
// the list leaves another number, and then the list is ignored.
type walNames struct {
	fs   healthFS
	dir  string
	file vfs.File
	// turn is full while the list is changed and written. Capacity 1; a channel for the same reason
	// as Log.order.
	turn chan struct{}

	// Guarded by turn.
	slot uint64 // number of the slot that was written last, from 1
	list walList
	// onDisk lists the files that the list on disk names.
	onDisk []namedWAL
}

// walList is the decoded file.
type walList struct {
	// options are the numbers of the OPTIONS files for which the list is valid: that of this run,
	// and that of the run before as long as a crash may leave either.
	options [2]uint64
	files   []namedWAL // by ascending number
	// seal is set by a clean close; the zero value says nothing.
	seal walSeal
}

// walSeal says how far the newest WAL file reached when the log was closed cleanly: number is the
// file's number, sequence the number of its last batch (walMark). A file that ends before has lost
// its tail.
//
// In a slot the seal stands behind the rest, where versions that do not know it ignore it. They
// omit it when they write the list.
type walSeal struct{ number, sequence uint64 }

// sealSize is the size of an encoded seal, with its checksum.
const sealSize = 20

func (s walSeal) encode(b []byte) []byte {
	if s.number == 0 {
		return b
	}
	begins := len(b)
	b = binary.LittleEndian.AppendUint64(b, s.number)
	b = binary.LittleEndian.AppendUint64(b, s.sequence)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b[begins:], castagnoli))
}

func decodeSeal(b []byte) (s walSeal) {
	if len(b) < sealSize ||
		binary.LittleEndian.Uint32(b[sealSize-4:]) != crc32.Checksum(b[:sealSize-4], castagnoli) {
		return s
	}
	return walSeal{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// namedWAL is a file in the list, with the length and checksum of its first bytes.
type namedWAL struct {
	number, length uint64
	checksum       uint32
}

const (
	walNamesFile = "TIDEMARK-WAL"
	slotSize     = 4 << 10
	namedSize    = 20
	// maxNamed is how many files fit into a slot. If there are more, the newest are named.
	maxNamed = (slotSize - 8 - 16 - 4 - 4 - sealSize) / namedSize
	// maxNamedLength bounds what is read of each file when the log is opened.
	maxNamedLength = 1 << 20
)

var errWALNames = errors.New("the list of the log's files is damaged")

// encode makes a slot.
func (l *walList) encode(slot uint64) []byte {
	files := l.files[max(0, len(l.files)-maxNamed):]
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, slotSize), slot)
	b = binary.LittleEndian.AppendUint64(b, l.options[0])
	b = binary.LittleEndian.AppendUint64(b, l.options[1])
	b = binary.LittleEndian.AppendUint32(b, uint32(len(files)))
	for _, f := range files {
		b = binary.LittleEndian.AppendUint64(b, f.number)
		b = binary.LittleEndian.AppendUint64(b, f.length)
		b = binary.LittleEndian.AppendUint32(b, f.checksum)
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = l.seal.encode(b)
	return append(b, make([]byte, slotSize-len(b))...)
}

// decodeSlot reads a slot; 0: there is none.
func decodeSlot(b []byte) (slot uint64, l walList) {
	const header = 8 + 16 + 4
	if len(b) < header+4 {
		return 0, l
	}
	count := binary.LittleEndian.Uint32(b[header-4:])
	if count > maxNamed {
		return 0, l
	}
	end := header + namedSize*int(count)
	if len(b) < end+4 ||
		binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return 0, l
	}
	l.options = [2]uint64{binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	for at := header; at < end; at += namedSize {
		l.files = append(l.files, namedWAL{binary.LittleEndian.Uint64(b[at:]),
			binary.LittleEndian.Uint64(b[at+8:]), binary.LittleEndian.Uint32(b[at+16:])})
	}
	l.seal = decodeSeal(b[end+4:])
	return binary.LittleEndian.Uint64(b), l
}

// readWALNames reads the file. A file that is not there, or was cut short by a crash when it was
// made, is an empty list.
func readWALNames(fs vfs.FS, dir string) (slot uint64, l walList, err error) {
	name := fs.PathJoin(dir, walNamesFile)
	f, err := fs.Open(name)
	if isNotExist(err) {
		return 0, l, nil
	}
	if err != nil {
		return 0, l, fmt.Errorf("open %s: %w", name, err)
	}
	content, err := io.ReadAll(io.LimitReader(f, 2*slotSize))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return 0, l, fmt.Errorf("read %s: %w", name, err)
	}
	written := 0
	for at := 0; at < len(content); at += slotSize {
		b := content[at:min(at+slotSize, len(content))]
		if s, list := decodeSlot(b); s > slot {
			slot, l = s, list
		}
		if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
			written++
		}
	}
	if slot == 0 && written > 1 {
		return 0, l, fmt.Errorf("%w: %s: %w", errDamaged, name, errWALNames)
	}
	return slot, l, nil
}

// checkWALNames says which file is missing of those that the list names, and returns the seal. The
// database is not open.
func checkWALNames(fs vfs.FS, dir, optionsFile string) (walSeal, error) {
	_, l, err := readWALNames(fs, dir)
	if err != nil || len(l.files) == 0 {
		return walSeal{}, err
	}
	if options, ok := fileNumber(optionsFile, "OPTIONS-", ""); !ok ||
		!slices.Contains(l.options[:], options) {
		return walSeal{}, nil // opened since by a version that does not know of the list
	}
	names, err := fs.List(dir)
	if err != nil {
		return walSeal{}, fmt.Errorf("list %s: %w", dir, err)
	}
	newest := uint64(0)
	for _, name := range names {
		if n, ok := walNumber(name); ok {
			newest = max(newest, n)
		}
	}
	for i, f := range l.files {
		name := fs.PathJoin(dir, fmt.Sprintf("%06d.log", f.number))
		err := f.check(fs, name)
		if isNotExist(err) {
			if i == 0 && newest > l.files[len(l.files)-1].number {
				continue // it was obsolete and became that one
			}
			err = errors.New("the file is missing")
		}
		if err != nil {
			return walSeal{}, fmt.Errorf("%w %s: it holds acknowledged writes: %w", errDamaged, name, err)
		}
	}
	return l.seal, nil
}

// check compares the file's beginning with what was synced of it.
func (w namedWAL) check(fs vfs.FS, name string) error {
	f, err := fs.Open(name, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(f, int64(min(w.length, maxNamedLength))))
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return err
	case len(content) == 0:
		return errors.New("the file is empty")
	case uint64(len(content)) < w.length:
		return fmt.Errorf("the file has %d bytes; its first sync covered %d", len(content),
			w.length)
	case crc32.Checksum(content, castagnoli) != w.checksum:
		return fmt.Errorf("its first %d bytes are not those that were synced", w.length)
	}
	return nil
}

// openWALNames opens the list for changes, and makes it if need be. The files of a list that does
// not go with the database any more are forgotten.
func openWALNames(fs healthFS, dir, optionsFile string) (*walNames, error) {
	n := &walNames{fs: fs, dir: dir, turn: make(chan struct{}, 1)}
	var err error
	if n.slot, n.list, err = readWALNames(fs, dir); err != nil {
		return nil, err
	}
	options, ok := fileNumber(optionsFile, "OPTIONS-", "")
	if !ok || !slices.Contains(n.list.options[:], options) {
		n.list = walList{}
	}
	n.list.options, n.list.seal = [2]uint64{options, options}, walSeal{}
	name := fs.PathJoin(dir, walNamesFile)
	_, statErr := fs.Stat(name)
	if n.file, err = fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	if isNotExist(statErr) {
		// Both slots are allocated now, so that a change finds room on a full disk.
		if _, err = n.file.WriteAt(make([]byte, 2*slotSize), 0); err == nil {
			err = syncDir(fs, dir)
		}
	}
	if err == nil {
		err = n.write()
	}
	if err != nil {
		_ = n.file.Close()
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return n, nil
}

func (n *walNames) close() {
	if n != nil {
		_ = n.file.Close()
	}
}

// write puts the list on disk. The caller has the turn, or is alone.
func (n *walNames) write() error {
	n.slot++
	if _, err := n.file.WriteAt(n.list.encode(n.slot), int64(n.slot%2)*slotSize); err != nil {
		return err
	}
	if err := n.file.Sync(); err != nil {
		return err
	}
	n.onDisk = slices.Clone(n.list.files)
	return nil
}

// add names a file.
func (n *walNames) add(f namedWAL) error {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	n.list.files = append(n.list.files, f)
	return n.write()
}

// sealAt seals the newest file, whose last batch has that number and is synced. Nothing is written
// to the log after that.
func (n *walNames) sealAt(sequence uint64) error {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if len(n.list.files) == 0 {
		return nil
	}
	n.list.seal = walSeal{n.list.files[len(n.list.files)-1].number, sequence}
	return n.write()
}

// obsolete forgets a file and all before it: on disk too, at once, before one is removed; if it is
// reused, only if the list on disk names others before it.
func (n *walNames) obsolete(number uint64, removed bool) error {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	gone := func(f namedWAL) bool { return f.number <= number }
	n.list.files = slices.DeleteFunc(n.list.files, gone)
	if !slices.ContainsFunc(n.onDisk, gone) || !removed && n.onDisk[0].number == number {
		return nil
	}
	return n.write()
}

// opening is told of the OPTIONS file that this run of Pebble is about to make.
func (n *walNames) opening(options uint64) error {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	n.list.options[1] = options
	return n.write()
}

// newestOptions is the name of Pebble's newest OPTIONS file; empty if there is none.
func newestOptions(fs vfs.FS, dir string) string {
	desc, err := pebble.Peek(dir, fs)
	if err != nil {
		return ""
	}
	return desc.OptionsFilename
}

func walNumber(name string) (uint64, bool) { return fileNumber(name, "", ".log") }

// fileNumber is the number in one of Pebble's file names.
func fileNumber(name, prefix, suffix string) (uint64, bool) {
	digits, begins := strings.CutPrefix(filepath.Base(name), prefix)
	digits, ends := strings.CutSuffix(digits, suffix)
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, begins && ends && err == nil && number < math.MaxInt64
}

// walStart follows what is written to a WAL file until that is named.
type walStart struct {
	namedWAL
	named bool
}

// write takes bytes that are written. What is beyond maxNamedLength is left out.
func (w *walStart) write(p []byte) {
	if w.named || w.length >= maxNamedLength {
		return
	}
	p = p[:min(uint64(len(p)), maxNamedLength-w.length)]
	w.length += uint64(len(p))
	w.checksum = crc32.Update(w.checksum, castagnoli, p)
}

// synced names the file after its first sync of something.
func (w *walStart) synced(n *walNames) error {
	if w.named || w.length == 0 {
		return nil
	}
	if err := n.add(w.namedWAL); err != nil {
		return err
	}
	w.named = true
	return nil
}
