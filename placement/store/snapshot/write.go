package snapshot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

const (
	magic       = "TMCS"
	format      = 1
	blockTarget = 256 << 10
	// maxBlock bounds the length that a block may claim: one pair can be as large as a command, or
	// a kept answer.
	maxBlock = blockTarget + 2*command.MaxBytes
)

var (
	crcTable = crc32.MakeTable(crc32.Castagnoli)
	// ErrDamaged means that a snapshot is damaged, or is not of the core's store.
	ErrDamaged = errors.New("the snapshot of the core's store is damaged")
)

func blockSum(content []byte, n uint64) uint32 {
	return crc32.Update(crc32.Checksum(content, crcTable), crcTable, tables.Number(n))
}

func withSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, crcTable))
}

// Write writes a snapshot of a store that has applied its log up to an entry. it is of that state,
// and of nothing else.
func Write(
	ctx context.Context, w io.Writer, it *pebble.Iterator, index, term uint64,
) error {
	header := append([]byte(magic), format)
	header = withSum(append(header, tables.EncodeApplied(index, term)...))
	if _, err := w.Write(header); err != nil {
		return err
	}
	var content []byte
	var blocks, pairs uint64
	flush := func() error {
		if len(content) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		head := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
		head = binary.BigEndian.AppendUint32(head, blockSum(content, blocks))
		blocks++
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(content)
		content = content[:0]
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		key := it.Key()[tables.LocalPrefixLength:]
		content = binary.AppendUvarint(content, uint64(len(key)))
		content = binary.AppendUvarint(content, uint64(len(value)))
		content = append(append(content, key...), value...)
		pairs++
		if len(content) >= blockTarget {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read the core's store for a snapshot: %w", err)
	}
	if err := flush(); err != nil {
		return err
	}
	trailer := withSum(append(tables.Number(blocks), tables.Number(pairs)...))
	_, err := w.Write(append(make([]byte, 4), trailer...))
	return err
}
