// Package keys defines the form of keys: ids, spans, internal keys, and the layout of a node's
// state database. No other package depends on the layout.
//
// There are three kinds of key, each wrapped in the next:
//
//	user key      what the application wrote: 1 byte to 8 KiB, any bytes
//	internal key  keyspace id (4 bytes, big endian), for a hash keyspace the partition number
//	              (2 bytes), then the user key. Everything below routing knows only internal keys
//	              and spans of them.
//	state key     the key in the state database: a table byte, then the rest, wrapped as a
//	              cockroachkvs engine key
//
// The state database:
//
//	0x01 partition id (8 bytes) suffix   LocalKey   replicated, addressed by partition: applied
//	                                                index, descriptor
//	0x02 escaped internal key, suffix    AnchorKey  replicated, addressed by a key, so that a
//	                                                split rewrites nothing
//	0x03 internal key [timestamp]        DataKey    the versions of a key, newest first
//
// Every state key is a complete engine key: it ends in the sentinel byte of an empty version, or in
// an encoded timestamp. State keys therefore go to the engine unchanged, also as bounds of
// iterators, of range deletions and of excises: the unversioned key of an internal key sorts
// directly before all its versions.
//
// Keys are any bytes, including zeros; nothing here may rely on a separator. Functions named
// Append... append to their first argument and return it, as the standard library's do; all others
// allocate. No other function keeps or changes its arguments.
//
// Imports: hlc, the descriptor's protobuf package, and Pebble's key encoding; nothing else of this
// module.
package keys
