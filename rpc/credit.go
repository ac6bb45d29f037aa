package rpc

import "github.com/tidemarkdb/tidemark/rpc/quota"

// credit is what a stream has taken of the memory that a party shares with others. It is taken and
// given back in pieces, so that few requests touch what all streams share.
type credit struct {
	of    *quota.Bytes
	party string
	taken int64
	over  bool
}

const (
	// creditPiece is taken at a time; more than creditSpare beyond what is needed is given back.
	creditPiece = 256 << 10
	creditSpare = 1 << 20
)

// cover sees to it that bytes are taken, and returns false if they are not to be had.
func (c *credit) cover(bytes int) bool {
	if int64(bytes) <= c.taken {
		return true
	}
	pieces := (int64(bytes) - c.taken + creditPiece - 1) / creditPiece
	if c.over || !c.of.Take(c.party, pieces*creditPiece) {
		return false
	}
	c.taken += pieces * creditPiece
	return true
}

// uncover gives back what is more than bytes, but for some.
func (c *credit) uncover(bytes int) {
	if spare := c.taken - int64(bytes); spare > creditSpare {
		give := (spare - creditPiece) / creditPiece * creditPiece
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
