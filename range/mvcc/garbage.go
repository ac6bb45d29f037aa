package mvcc

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// GarbageLimits bound one call of Garbage. 0 is no limit.
type GarbageLimits struct {
	// Versions is how many versions to name.
	Versions int
	// Bytes is how large the named versions may be together, the first one excepted.
	Bytes int64
	// Scanned is how many versions to look at.
	Scanned int
}

// GarbageResult is what may go.
type GarbageResult struct {
	// Versions are the state keys of the versions that no read at or above the threshold can see.
	// They may be removed together (Remove), or any first few of them: whatever is hidden by a
	// version comes before it.
	Versions [][]byte
	// Sizes is what each of them takes, key and value, and Bytes what all do.
	Sizes []int64
	Bytes int64
	// Scanned is how many versions were looked at.
	Scanned int
	// More: a limit ended the search. Resume is the internal key at which to go on.
	More   bool
	Resume []byte
}

// Garbage finds versions in a span of internal keys that no read at or above threshold can see:
// those below a version at or below the threshold; and that version too if it is a tombstone.
// The caller that removes them makes sure that no read below the threshold comes any more, and that
// no retry looks for the request ids that go with them.
func Garbage(r engine.Reader, span keys.Span, threshold hlc.Timestamp,
	limits GarbageLimits) (GarbageResult, error) {
	var result GarbageResult
	if span.Empty() || threshold.Wall < 0 || threshold.IsZero() {
		return result, nil
	}
	bounds := keys.DataSpan(span)
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End})
	if err != nil {
		return GarbageResult{}, fmt.Errorf("collect garbage in %s: %w", span, err)
	}
	c := collector{iter: iter, threshold: threshold, limits: limits, result: &result}
	err = c.run()
	if closeErr := iter.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return GarbageResult{}, fmt.Errorf("collect garbage in %s: %w", span, err)
	}
	return result, nil
}

// collector is one search for garbage.
type collector struct {
	iter      *pebble.Iterator
	threshold hlc.Timestamp
	limits    GarbageLimits
	result    *GarbageResult

	// prefix is the unversioned data key of the key being looked at.
	prefix []byte
	// hidden: a version of this key at or below the threshold was met, so all that follow are garbage.
	hidden bool
	// tombstone is that version, if it is one. It goes after all that it hides: without it they
	// would be back.
	tombstone []byte
	// newer is how many versions above the threshold were stepped over.
	newer int
}

func (c *collector) run() error {
	for ok := c.iter.First(); ok; {
		stateKey := c.iter.Key()
		key, v, err := decode(c.iter)
		if err != nil {
			return err
		}
		sameKey := true
		if p := dataPrefix(stateKey); !bytes.Equal(p, c.prefix) {
			sameKey = false
			c.endKey()
			c.prefix, c.hidden, c.newer = append(c.prefix[:0], p...), false, 0
		}
		size := int64(len(stateKey) + len(v.Value))
		if c.full(sameKey, size) {
			// In the middle of a key the tombstone stays. The next call meets it again.
			c.result.More, c.result.Resume = true, bytes.Clone(key)
			return nil
		}
		c.result.Scanned++
		switch {
		case c.hidden:
			c.take(bytes.Clone(stateKey), size)
		case v.Timestamp.LessEq(c.threshold):
			c.hidden = true
			if v.Kind == KindTombstone {
				c.tombstone = bytes.Clone(stateKey)
			}
		default:
			c.newer++
		}
		if c.newer > maxSteps && !c.hidden {
			// Many versions above the threshold: none of them matters.
			c.newer = 0
			ok = c.iter.SeekGE(keys.AppendTimestamp(bytes.Clone(c.prefix), c.threshold))
		} else {
			ok = c.iter.Next()
		}
	}
	c.endKey()
	return c.iter.Error()
}

// full reports whether a limit is reached before a version. In the middle of a key it is only if
// there is some garbage already, so that every call that stops within a key has got somewhere.
func (c *collector) full(sameKey bool, size int64) bool {
	n := len(c.result.Versions)
	if n > 0 && ((c.limits.Versions > 0 && n >= c.limits.Versions) ||
		(c.limits.Bytes > 0 && c.result.Bytes+size > c.limits.Bytes)) {
		return true
	}
	return c.limits.Scanned > 0 && c.result.Scanned >= c.limits.Scanned && (!sameKey || n > 0)
}

// endKey takes the tombstone that has nothing left to hide.
func (c *collector) endKey() {
	if c.tombstone != nil {
		c.take(c.tombstone, int64(len(c.tombstone)))
		c.tombstone = nil
	}
}

func (c *collector) take(stateKey []byte, size int64) {
	c.result.Versions = append(c.result.Versions, stateKey)
	c.result.Sizes = append(c.result.Sizes, size)
	c.result.Bytes += size
}

// Remove adds the removal of versions that Garbage named to the batch.
func Remove(b *engine.StateBatch, versions [][]byte) error {
	for _, stateKey := range versions {
		if _, ts, err := keys.DecodeVersioned(stateKey); err != nil || ts.IsZero() {
			return fmt.Errorf("remove version %s: not the key of a version", keys.PrettyState(stateKey))
		}
		if err := b.Delete(stateKey, nil); err != nil {
			return fmt.Errorf("remove version %s: %w", keys.PrettyState(stateKey), err)
		}
	}
	return nil
}
