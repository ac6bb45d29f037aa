// Package block encodes sorted records as a block. A bulk load sends blocks to a partition, whose
// log and replicas use them unchanged.
//
// A block has keys in ascending order, each once, with their values. Each key is stored as the
// length of the prefix that it shares with the key before, and its rest. The block is compressed if
// that makes it smaller:
//
//	version    1 byte: 1, or 2 with lifetimes
//	form       1 byte: 0 as it is, 1 compressed (Snappy)
//	records    uvarint
//	size       uvarint: the length of the body before compression
//	lifetimes  uvarint, in version 2: how many bytes at the end of the body are lifetimes
//	body       the rest
//
// and in the body, for each record:
//
//	shared, rest, value   uvarint each: lengths
//	rest of the key, value
//
// and behind all of them, in version 2, for each record its lifetime, a varint: 0 where the request
// that carries the block decides, -1 for ever, below -1 the moment of the expiry (keys.Lifetime).
//
// # Invariants
//
//   - The input of Open and Next is bounded: MaxRecords records, and MaxBody bytes, which are not
//     allocated before the block is known to hold so much.
//   - A Reader that came to the end without an error has returned exactly the records that the
//     block says, in strictly ascending order, each a key and a value that may be stored.
//   - No bytes make a Reader panic.
//
// # Imports
//
// range/keys, for the limits of keys and values.
package block
