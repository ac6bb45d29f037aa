// Package archive is the format of the objects that a backup stores: pieces, which hold versions of
// keys, and blobs, which hold any other bytes, such as a manifest. Both are built whole in memory
// and sealed in the same layers:
//
//	magic       4 bytes: "TMBK"
//	version     1 byte: 1
//	form        1 byte: 1 compressed (Zstandard), 2 encrypted (age); flags, added
//	content     1 byte: 1 a piece, 2 a blob
//	recipients  if encrypted: uvarint count, and for each a uvarint length and "age1..."
//	body        the payload, compressed by Zstandard with a window of at most 8 MiB; if encrypted,
//	            the compressed bytes are an age file for the recipients
//	checksum    4 bytes, little endian: CRC-32C of everything before
//
// Numbers are little endian. uvarint and varint are the encodings of encoding/binary. The names of
// the recipients are not encrypted, so that an error can say whose identity is needed. The outer
// checksum can be checked without an identity.
//
// # Payload of a piece
//
//	header      uvarint length, and a Header as JSON
//	records     one after the other
//	count       8 bytes: how many records
//	checksum    4 bytes: CRC-32C of the payload before
//
// Records are in ascending order of keys. Records of one key are in descending order of timestamps.
// A record is:
//
//	flags       1 byte: 1 tombstone, 2 has an expiry, 4 has a logical time, 8 same key as before
//	key         unless the same: uvarint, how many bytes it shares with the key before; uvarint, how
//	            many follow; these
//	wall        varint: wall time, less that of the record before; of the first one, less that of
//	            the header's At
//	logical     uvarint, if flagged
//	expiry      varint, if flagged: the expiry, less the wall time
//	value       unless a tombstone: uvarint length, and the value
//
// # Payload of a blob
//
//	kind        uvarint length, and the kind
//	content     the bytes
//	checksum    4 bytes: CRC-32C of the payload before
//
// # Invariants
//
//   - No input makes a reader panic, or allocate more than about twice MaxPayload.
//   - Open checks both checksums before the first record is returned. Next checks each record
//     before it returns it, and the count before it returns io.EOF.
//   - This and every later version reads everything that a Writer has sealed. testdata has files of
//     each version of the format. A format that an earlier program cannot read gets a new version
//     number. The earlier program then reports that a newer program is needed.
//
// # Imports
//
// hlc, and range/keys for the limits on the sizes of keys and values.
package archive
