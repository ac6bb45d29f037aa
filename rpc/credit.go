package rpc

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// credit is what a stream has taken of the memory that a party shares with others. It is taken and
// given back in creditPieces, so that few requests touch what all streams share.
type credit struct {
	of    *quota.Bytes
	party string
	taken int64
	over  bool
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

func newCredit(of *quota.Bytes, party string) credit {
	return credit{of: of, party: party,
		piece: min(max(of.Limit()/creditPieces, leastPiece), mostPiece)}
}

// cover sees to it that bytes are taken, and returns false if they are not to be had.
func (c *credit) cover(bytes int) bool {
	if int64(bytes) <= c.taken {
		return true
	}
	more := (int64(bytes) - c.taken + c.piece - 1) / c.piece * c.piece
	if c.over || !c.of.Take(c.party, more) {
		return false
	}
	c.taken += more
	return true
}

// never is the answer to a request that takes, or whose response takes, more memory than a party
// can ever have; nil if it may find that. what says which of the two it is. beside is taken at the
// same time, by the message of the request.
func (c *credit) never(id uint64, what string, bytes int, beside int64) *kvpb.Response {
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

// uncover gives back what is more than bytes, but for some.
func (c *credit) uncover(bytes int) {
	if spare := c.taken - int64(bytes); spare > sparePieces*c.piece {
		give := (spare - c.piece) / c.piece * c.piece
		c.of.Give(c.party, give)
		c.taken -= give
	}
}

// close gives back everything. Nothing is taken any more.
func (c *credit) close() {
	if c.taken > 0 {
		c.of.Give(c.party, c.taken)
	}
	c.taken, c.over = 0, true
}

// Take implements transport.Budget, for messages that are being received. It is apart from the
// rest, and needs no lock.
func (c *credit) Take(n int64) bool { return c.of.Take(c.party, n) }

// Give implements transport.Budget.
func (c *credit) Give(n int64) { c.of.Give(c.party, n) }
