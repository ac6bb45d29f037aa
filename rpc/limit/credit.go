package limit

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Credit is what a stream has taken of the memory that a principal shares with others. It is taken
// and given back in creditPieces, so that few requests touch what all streams share.
type Credit struct {
	of     *quota.Bytes
	holder string
	taken  int64
	over   bool
	// piece is taken at a time; more than sparePieces of that beyond what is needed are given back.
	piece int64
}

// A piece is a small part of all memory, so that what a thousand streams have taken and do not need
// is a part of all memory only.
const (
	creditPieces          = 16 << 10
	leastPiece, mostPiece = 4 << 10, 64 << 10
	sparePieces           = 4
)

// Credit makes the credit of a stream of a principal, of which nothing is taken.
func (m *RequestMemory) Credit(party string) Credit {
	of := m.bytes
	return Credit{of: of, holder: party,
		piece: min(max(of.Limit()/creditPieces, leastPiece), mostPiece)}
}

// Principal is whose memory the stream takes.
func (c *Credit) Principal() string { return c.holder }

// Cover sees to it that bytes are taken, and returns false if they are not to be had.
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

// Never is the answer to a request that takes, or whose response takes, more memory than a
// principal can ever have; nil if it may find that. what says which of the two it is. beside is
// taken at the same time, by the message of the request.
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

// Uncover gives back what is more than bytes, but for some.
func (c *Credit) Uncover(bytes int) {
	if spare := c.taken - int64(bytes); spare > sparePieces*c.piece {
		give := (spare - c.piece) / c.piece * c.piece
		c.of.Give(c.holder, give)
		c.taken -= give
	}
}

// Close gives back everything. Nothing is taken any more.
func (c *Credit) Close() {
	if c.taken > 0 {
		c.of.Give(c.holder, c.taken)
	}
	c.taken, c.over = 0, true
}

// Take implements transport.Budget, for messages that are being received. It is apart from the
// rest, and needs no lock.
func (c *Credit) Take(n int64) bool { return c.of.Take(c.holder, n) }

// Give implements transport.Budget.
func (c *Credit) Give(n int64) { c.of.Give(c.holder, n) }
