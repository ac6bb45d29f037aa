// Package snapshot is the stream that carries a whole store to a member. Write makes the stream
// from a state. Copy verifies the stream and writes its pairs.
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
