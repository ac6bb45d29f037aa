// Package archive is the format of what a backup stores: pieces, which have versions of keys, and
// blobs, which have any other bytes, such as a manifest. Both are made whole in memory, and sealed
// in the same layers:
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
// Numbers are little endian, and uvarint and varint are those of encoding/binary. The names of
// recipients stand outside of the encryption, so that an error can say whose identity is needed.
// The outer checksum can be checked without an identity.
//
// # Payload of a piece
//
//	header      uvarint length, and a Header as JSON
//	records     one after the other
//	count       8 bytes: how many records
//	checksum    4 bytes: CRC-32C of the payload before
//
// Records are in ascending order of keys, and those of one key in descending order of timestamps. A
// record is:
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
//   - No bytes make a reader panic, or allocate more than about twice MaxPayload.
//   - Open checks both checksums before the first record is returned. Next checks each record
//     before it returns it, and the count before it returns io.EOF.
//   - What a Writer has sealed, this and every later version reads. testdata has files of each
//     version. A version that an earlier program could not read gets a new number, and the earlier
//     program says that it needs a newer one.
//
// # Imports
//
// hlc, and range/keys for how large keys and values may be.
package archive
