package raftlog

import (
	"encoding/binary"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	groupPrefix = 'g'

	kindIdentity  = 0x01
	kindHardState = 0x02
	kindTruncated = 0x03
	kindEntry     = 0x10
	kindEnd       = 0xff

	entryKeyLength = 1 + 8 + 1 + 8
)

func appendGroupKey(dst []byte, group keys.PartitionID, kind byte) []byte {
	dst = append(dst, groupPrefix)
	dst = binary.BigEndian.AppendUint64(dst, uint64(group))
	return append(dst, kind)
}

func appendEntryKey(dst []byte, group keys.PartitionID, index uint64) []byte {
	return binary.BigEndian.AppendUint64(appendGroupKey(dst, group, kindEntry), index)
}

// decodeGroupKey returns the group and kind of a key of this layout.
func decodeGroupKey(key []byte) (group keys.PartitionID, kind byte, ok bool) {
	if len(key) < 10 || key[0] != groupPrefix {
		return 0, 0, false
	}
	return keys.PartitionID(binary.BigEndian.Uint64(key[1:9])), key[9], true
}
