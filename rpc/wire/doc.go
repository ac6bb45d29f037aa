// Package wire is the encoding that both ends of a connection share: the codec of all gRPC
// connections with its buffers, the check of how many parts a message has, the conversion of
// timestamps, the encoding of rows, and errors.
//
// # Invariants
//
//   - A message of the data path aliases the buffer that it was decoded from. That buffer is never
//     reused, so the slices stay valid; but one retained slice retains the whole message. What
//     outlives the request must be copied (CloneRequest).
//   - No message is decoded before its parts are counted, if it is large: the encoding of an empty
//     part takes two bytes, and the part a hundred bytes of memory.
//
// The only state of the package is a pool of buffers. It imports hlc, rpc/transport and the
// generated protocol packages, and nothing else of Tidemark.
package wire
