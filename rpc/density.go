package rpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// An empty sub-message takes two bytes on the wire and a hundred in memory, so a message that is within its limit of bytes may
// decode to gigabytes. Large messages are therefore counted before they are decoded. Small ones cannot grow far, and
// need not pay for it.
const (
	// countedFrom is the size from which a message is counted: 1 MiB grows to some 80 MiB at worst.
	countedFrom = 1 << 20
	// maxRequestParts is the limit for requests together with their operations and keys: more than twice the largest transaction.
	maxRequestParts = 1 << 18
	// maxMessageParts is the limit for Raft messages together with their entries.
	maxMessageParts = 1 << 20
)

// checkParts refuses an encoded message with more than limit sub-messages, strings and byte fields in its first `depth` levels.
// The levels above the last must not have byte fields of the user's content, which may look like anything.
func checkParts(b []byte, limit, depth int) error {
	if len(b) < countedFrom {
		return nil
	}
	if countParts(b, limit, depth) > limit {
		return fmt.Errorf("the message has more than %d parts", limit)
	}
	return nil
}

// countParts counts up to a little more than limit. Where the bytes are no valid encoding it stops: decoding will say so.
func countParts(b []byte, limit, depth int) (count int) {
	for len(b) > 0 && count <= limit {
		_, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return count
		}
		b = b[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(1, kind, b); n < 0 {
				return count
			}
			b = b[n:]
			continue
		}
		part, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return count
		}
		b = b[n:]
		count++
		if depth > 1 {
			count += countParts(part, limit-count, depth-1)
		}
	}
	return count
}
