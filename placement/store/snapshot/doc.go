// Package snapshot is the stream in which a member is sent a store as a whole: Write makes it of a
// state, and Copy writes its pairs elsewhere and refuses what is damaged or not of a store.
//
// A snapshot is the header, blocks of pairs, and a trailer:
//
//	header:  "TMCS", format, index (8 bytes), term (8), CRC-32C of these
//	block:   length (4, not 0), CRC-32C of the content and of the block's number, content
//	content: length of key, length of value (both uvarint), key without the core's
//	         local prefix, value; and so on
//	trailer: 0 (4), number of blocks (8), number of pairs (8), CRC-32C of these
//
// Numbers are big endian. Keys ascend. The package has no state.
package snapshot
