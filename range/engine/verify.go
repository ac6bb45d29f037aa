package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble takes a damaged record in the newest WAL, or in the manifest, for the end of the file: it
// cannot tell it from a write that a crash cut short, and ignores everything behind it. For the Log
// that would silently lose acknowledged entries. So before Pebble opens the files, verify searches
// both, behind the place where Pebble would stop, for something valid that proves that everything
// before had been synced:
//
//   - in a manifest, any record: each is synced before the next is written;
//   - in a WAL, a batch whose mark (see walMark) says that an unreadable batch was synced.
//
// In a log that was not closed, three kinds of damage remain undetected: to the last record, to a
// batch after which no other was committed, and a truncated file, which has lost all that could
// prove it. In a log that was closed none remains: Log.Close commits a mark, and writes into the
// list of WAL files how far the newest one reaches (walSeal).
//
// walNames detects a WAL file that is missing or empty.

// verify checks the files of a database that is not open.
func verify(fs vfs.FS, dir string, k kind) error {
	desc, err := pebble.Peek(dir, fs)
	if err != nil || !desc.Exists {
		// If something is wrong, Pebble reports it when it opens the database.
		return nil
	}
	if err := verifyFile(fs, desc.ManifestFilename, 0, checkManifest); err != nil {
		return err
	}
	if k != kindLog {
		return nil
	}
	seal, err := checkWALNames(fs, dir, desc.OptionsFilename)
	if err != nil {
		return err
	}
	wal, number, err := newestWAL(fs, dir)
	if err != nil || wal == "" {
		return err
	}
	return verifyFile(fs, wal, number, func(content []byte, number uint32) error {
		return checkWAL(content, number, seal)
	})
}

// newestWAL returns the WAL file that a crash may have cut short. All others were closed, and
// Pebble checks those strictly.
func newestWAL(fs vfs.FS, dir string) (path string, number uint32, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return "", 0, fmt.Errorf("list %s: %w", dir, err)
	}
	newest := uint64(0)
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, ".log")
		if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && n > newest {
			newest, path = n, fs.PathJoin(dir, name)
		}
	}
	// Pebble keeps the low half of the number in every chunk.
	return path, uint32(newest), nil
}

func verifyFile(fs vfs.FS, path string, number uint32,
	check func(content []byte, number uint32) error) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	content, err := io.ReadAll(f)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if err := check(content, number); err != nil {
		return fmt.Errorf("%w %s: %w", errDamaged, path, err)
	}
	return nil
}

// readable calls visit for each record that Pebble would read, and returns where the last of them
// ends.
func readable(content []byte, number uint32, visit func(payload []byte)) (end int) {
	r := newRecordReader(record.NewReader, content, number)
	var payload bytes.Buffer
	for {
		one, err := r.Next()
		if err != nil {
			return end
		}
		payload.Reset()
		if _, err := payload.ReadFrom(one); err != nil {
			return end
		}
		end = int(r.Offset())
		visit(payload.Bytes())
	}
}

// newRecordReader calls record.NewReader, whose second parameter has a type that only Pebble can
// name.
func newRecordReader[N ~uint64](newReader func(io.Reader, N) *record.Reader, content []byte,
	number uint32) *record.Reader {
	return newReader(bytes.NewReader(content), N(number))
}

func checkManifest(content []byte, _ uint32) error {
	end := readable(content, 0, func([]byte) {})
	return laterChunks(content, end, 0, func(at int, _ []byte) error {
		return fmt.Errorf("the record at offset %d is broken, those from offset %d are not", end,
			at)
	})
}

func checkWAL(content []byte, number uint32, seal walSeal) error {
	// last is the mark of the last readable batch.
	var last walMark
	end := readable(content, number, func(batch []byte) {
		if m, ok := readMark(batch); ok {
			last = m
		}
	})
	if uint32(seal.number) == number && last.sequence < seal.sequence {
		return fmt.Errorf("it ends at offset %d with batch %d, and had %d batches when the log was "+
			"closed: its end is cut off or damaged", end, last.sequence, seal.sequence)
	}
	// first is the mark of the first batch behind the damage.
	var first walMark
	return laterChunks(content, end, number, func(at int, batch []byte) error {
		m, ok := readMark(batch)
		if !ok {
			return nil
		}
		if first.sequence == 0 {
			first = m
		}
		// Either the batch after the last readable one was synced; or, if none is readable, so that
		// the missing numbers are unknown, the first batch behind the damage was synced, and all
		// before it.
		if (last.sequence > 0 && m.synced > last.sequence) || m.synced >= first.sequence {
			return fmt.Errorf("the batch at offset %d is broken, and the one at offset %d says "+
				"that it was synced", end, at)
		}
		return nil
	})
}

// Pebble's record format: blocks of 32 KiB with chunks in them. A chunk is a checksum (4 bytes), a
// length (2) and a type (1); in a WAL a file number (4) and in newer ones the synced offset (8);
// then the payload. A record of one chunk is "full".
const (
	blockSize        = 32 << 10
	legacyHeader     = 7
	recyclableHeader = 11
	walSyncHeader    = 19
)

// chunkHeader is the header size of the chunk types that begin a record, in a manifest (number 0)
// and in a WAL.
func chunkHeader(chunkType byte, number uint32) int {
	switch {
	case number == 0 && (chunkType == 1 || chunkType == 2):
		return legacyHeader
	case number != 0 && (chunkType == 5 || chunkType == 6):
		return recyclableHeader
	case number != 0 && (chunkType == 9 || chunkType == 10):
		return walSyncHeader
	}
	return 0
}

// laterChunks calls visit for each intact chunk that begins a record at or after an offset. The
// chain of chunks is broken there, so every offset is tried.
func laterChunks(content []byte, from int, number uint32,
	visit func(at int, payload []byte) error) error {
	for at := from; at+legacyHeader <= len(content); at++ {
		header := chunkHeader(content[at+6], number)
		blockEnd := min(len(content), (at/blockSize+1)*blockSize)
		if header == 0 || at+header > blockEnd {
			continue
		}
		if number != 0 && binary.LittleEndian.Uint32(content[at+7:]) != number {
			continue
		}
		end := at + header + int(binary.LittleEndian.Uint16(content[at+4:]))
		if end > blockEnd ||
			binary.LittleEndian.Uint32(content[at:]) != maskedCRC(content[at+6:end]) {
			continue
		}
		if err := visit(at, content[at+header:end]); err != nil {
			return err
		}
		at = end - 1
	}
	return nil
}

// maskedCRC is the checksum of a chunk in Pebble and LevelDB.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}
