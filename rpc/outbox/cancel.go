package outbox

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// tagCancelled replaces the tag of a record that was cancelled before it was sent. No message has
// such a field, so a reader skips the record.
const tagCancelled = 15<<3 | 2

// CancelLocked cancels the request with an id, which lies in a chunk under a tag, and reports
// whether that was possible: a chunk that was passed to the connection cannot be changed. A
// cancelled request has not been sent, and never will be.
func (o *Outbox) CancelLocked(tag byte, chunk, id uint64) bool {
	if o.GivenLocked(chunk) {
		return false
	}
	if o.mu.closed {
		return true // pending records were dropped
	}
	if chunk-o.mu.first >= uint64(len(o.mu.pending)) {
		return false
	}
	for rest := *o.mu.pending[chunk-o.mu.first]; len(rest) > 0; {
		size, n := binary.Uvarint(rest[1:])
		if n <= 0 || size > uint64(len(rest)-1-n) {
			return false
		}
		end := 1 + n + int(size)
		if rest[0] == tag && requestID(rest[1+n:end]) == id {
			rest[0] = tagCancelled
			return true
		}
		rest = rest[end:]
	}
	return false
}

// requestID returns the id of an encoded request. It is the first field, as it has the lowest
// number.
func requestID(request []byte) uint64 {
	number, kind, n := protowire.ConsumeTag(request)
	if n < 0 || number != 1 || kind != protowire.VarintType {
		return 0
	}
	id, n := protowire.ConsumeVarint(request[n:])
	if n < 0 {
		return 0
	}
	return id
}
