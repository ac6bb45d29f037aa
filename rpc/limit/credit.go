package limit

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Credit is the memory that a stream has taken of what principals share. It is taken and returned
// in pieces, so that few requests touch the shared counters.
type Credit struct {
	of     *quota.Bytes
	holder string
	taken  int64
	over   bool
	// piece is the number of bytes taken at a time. Pieces beyond sparePieces more than needed are
	// returned.
	piece int64
}

// A piece is a small part of all memory, so that the spare pieces of a thousand streams are only a
// part of it.
const (
	creditPieces          = 16 << 10
	leastPiece, mostPiece = 4 << 10, 64 << 10
	sparePieces           = 4
)

// Credit returns an empty credit for a stream of a principal.
func (m *RequestMemory) Credit(party string) Credit {
	of := m.bytes
	return Credit{of: of, holder: party,
		piece: min(max(of.Limit()/creditPieces, leastPiece), mostPiece)}
}

// Principal returns the principal whose memory the stream takes.
func (c *Credit) Principal() string { return c.holder }

// Cover makes the credit at least bytes large. It returns false if there is not enough memory.
func (c *Credit) Cover(bytes int) bool {
	if int64(bytes) <= c.taken {
		return true
	}
	more := (int64(bytes) - c.taken + c.piece - 1) / c.piece * c.piece
	if c.over || !c.of.Take(c.holder, more) {
		return false
	}
	c.taken += more
	return true
}

// Never returns the answer to a request that takes more memory, or whose response does, than a
// principal can ever have; nil if there may be enough. what names the request or the response.
// beside is the memory that the request's message takes at the same time.
func (c *Credit) Never(id uint64, what string, bytes int, beside int64) *kvpb.Response {
	most := c.of.Most() - c.piece - beside
	if int64(bytes) <= most {
		return nil
	}
	r := wire.ErrorResponse(id, kvpb.ErrorCode_OVERLOADED, fmt.Sprintf("the %s takes %d bytes of "+
		"memory, and this server has %d at most for one: ask for less at a time, or give the server "+
		"a higher --memory-limit", what, bytes, most))
	r.Error.Cause = kvpb.ErrorCause_CAUSE_TOO_LARGE
	return r
}

// Uncover returns the memory beyond bytes, except for some spare.
func (c *Credit) Uncover(bytes int) {
	if spare := c.taken - int64(bytes); spare > sparePieces*c.piece {
		give := (spare - c.piece) / c.piece * c.piece
		c.of.Give(c.holder, give)
		c.taken -= give
	}
}

// Close returns all memory. Nothing may be taken afterwards.
func (c *Credit) Close() {
	if c.taken > 0 {
		c.of.Give(c.holder, c.taken)
	}
	c.taken, c.over = 0, true
}

// Take implements transport.Budget, for messages that are being received. It does not change the
// credit, and needs no lock.
func (c *Credit) Take(n int64) bool { return c.of.Take(c.holder, n) }

// Give implements transport.Budget.
func (c *Credit) Give(n int64) { c.of.Give(c.holder, n) }
