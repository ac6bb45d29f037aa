package mvcc

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/range/engine"
)

// countingReader remembers its last iterator, to ask it for its work while it is open.
type countingReader struct {
	engine.Reader
	last *pebble.Iterator
}

func (c *countingReader) NewIter(o *pebble.IterOptions) (*pebble.Iterator, error) {
	i, err := c.Reader.NewIter(o)
	c.last = i
	return i, err
}

// steps is how often the iterator moved so far, seeks included.
func (c *countingReader) steps() int {
	s := c.last.Stats()
	n := 0
	for _, kind := range []pebble.IteratorStatsKind{pebble.InterfaceCall, pebble.InternalIterCall} {
		n += s.ForwardSeekCount[kind] + s.ReverseSeekCount[kind] + s.ForwardStepCount[kind] +
			s.ReverseStepCount[kind]
	}
	return n
}
