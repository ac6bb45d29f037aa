package storage

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// CountVersions counts the versions in a span of internal keys. It calls pause now and then; an
// error from pause ends the count.
func CountVersions(reader engine.Reader, span keys.Span, pause func() error) (Stats, error) {
	var c Counter
	err := Each(reader, keys.DataSpan(span), func(i *pebble.Iterator) (bool, error) {
		if c.Stats.Versions%256 == 255 {
			if err := pause(); err != nil {
				return false, err
			}
		}
		value, err := i.ValueAndErr()
		if err != nil {
			return false, err
		}
		return true, c.Add(i.Key(), value)
	})
	return c.Stats, err
}

// Counter counts versions that are added in the order of their state keys.
type Counter struct {
	Stats Stats
	// last is the internal key of the latest version.
	last []byte
}

// Add counts one version.
func (c *Counter) Add(key, value []byte) error {
	internalKey, ts, err := keys.DecodeVersioned(key)
	if err != nil || ts.IsZero() {
		return fmt.Errorf("%s is not a version", keys.PrettyState(key))
	}
	h, stored, err := mvcc.DecodeHeader(value)
	if err != nil {
		return fmt.Errorf("%s: %w", keys.PrettyState(key), err)
	}
	c.Stats.Versions++
	c.Stats.Bytes += uint64(len(key) + len(stored))
	if h.Expires != 0 {
		c.Stats.Expiring++
	}
	if c.Stats.Versions == 1 || !bytes.Equal(c.last, internalKey) {
		c.last = append(c.last[:0], internalKey...)
		if h.Kind == mvcc.KindValue {
			c.Stats.LiveKeys++
		}
	}
	return nil
}
