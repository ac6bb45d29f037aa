package mvcc

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// GarbageLimits bound one call of Garbage. 0 is no limit.
type GarbageLimits struct {
	// Versions bounds the versions to return.
	Versions int
	// Bytes bounds their total size, except that the first one may be larger.
	Bytes int64
	// Scanned bounds the versions to look at.
	Scanned int
}

// GarbageResult has the versions that may be removed.
type GarbageResult struct {
	// Versions are the state keys of the versions that no read at or above the threshold can see.
	// They may be removed together (Remove), or any prefix of them: the versions that a version
	// hides come before it.
	Versions [][]byte
	// Sizes are the sizes of their keys and values, and Bytes the sum.
	Sizes []int64
	Bytes int64
	// Expiring[i] is set if Versions[i] has an expiry.
	Expiring []bool
	// Expired are the indices of versions that are the newest of their key and have an expired
	// value.
	Expired []int
	// NextExpiry is the first expiry, a wall time, among the versions that stay; 0 if none expires.
	NextExpiry int64
	// Scanned counts the versions that were looked at.
	Scanned int
	// More is set if a limit ended the search. Resume is the internal key at which to continue.
	More   bool
	Resume []byte
}

// Garbage finds versions in a span of internal keys that no read at or above threshold can see:
// those hidden by a newer version at or below the threshold, and that newer version too if it is a
// tombstone, or has expired at or below the threshold. Before it removes them, the caller must
// ensure that no later read is below the threshold, and that no retry looks for their request ids.
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

// collector is the state of one Garbage call.
type collector struct {
	iter      *pebble.Iterator
	threshold hlc.Timestamp
	limits    GarbageLimits
	result    *GarbageResult

	// prefix is the unversioned data key of the key being looked at.
	prefix []byte
	// hidden is set if a version of this key at or below the threshold was met, so that all
	// following versions are garbage.
	hidden bool
	// last is that version, if it is a tombstone or has expired. It is removed after all versions
	// that it hides, which would reappear without it.
	last collected
	// seen is set if a version of this key was looked at, or skipped.
	seen bool
	// newer counts the versions above the threshold that were stepped over.
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
			c.prefix, c.hidden, c.newer, c.seen = append(c.prefix[:0], p...), false, 0, false
		}
		size := int64(len(stateKey) + len(v.Value))
		if c.full(sameKey, size) {
			// In the middle of a key the tombstone stays. The next call finds the tombstone again.
			c.result.More, c.result.Resume = true, bytes.Clone(key)
			return nil
		}
		c.result.Scanned++
		switch {
		case c.hidden:
			c.take(collected{bytes.Clone(stateKey), size, v.Expires != 0, false})
		case v.Timestamp.LessEq(c.threshold):
			c.hidden = true
			if !v.LiveAt(c.threshold) {
				c.last = collected{bytes.Clone(stateKey), size, v.Expires != 0,
					v.Kind == KindValue && !c.seen}
			} else {
				c.stays(&v)
			}
		default:
			c.newer++
			c.stays(&v)
		}
		c.seen = true
		if c.newer > maxSteps && !c.hidden {
			// Skip many versions above the threshold.
			c.newer = 0
			ok = c.iter.SeekGE(keys.AppendTimestamp(bytes.Clone(c.prefix), c.threshold))
		} else {
			ok = c.iter.Next()
		}
	}
	c.endKey()
	return c.iter.Error()
}

// full reports whether a limit is reached before a version. Within a key, full waits until some
// garbage is found, so that every call that stops within a key makes progress.
func (c *collector) full(sameKey bool, size int64) bool {
	n := len(c.result.Versions)
	if n > 0 && ((c.limits.Versions > 0 && n >= c.limits.Versions) ||
		(c.limits.Bytes > 0 && c.result.Bytes+size > c.limits.Bytes)) {
		return true
	}
	return c.limits.Scanned > 0 && c.result.Scanned >= c.limits.Scanned && (!sameKey || n > 0)
}

// endKey collects the last tombstone or expired version of the key, which hides no version any
// more.
func (c *collector) endKey() {
	if c.last.stateKey != nil {
		c.take(c.last)
		c.last = collected{}
	}
}

// collected is a version that may be removed.
type collected struct {
	stateKey []byte
	size     int64
	expiring bool
	// expired is set if the version is the newest of its key, and a value.
	expired bool
}

func (c *collector) take(g collected) {
	if invariants.Enabled {
		_, ts, err := keys.DecodeVersioned(g.stateKey)
		invariants.Check(err == nil && ts.LessEq(c.threshold) && c.hidden,
			"%s may go, and reads at or above %s can see it", keys.PrettyState(g.stateKey), c.threshold)
	}
	if g.expired {
		c.result.Expired = append(c.result.Expired, len(c.result.Versions))
	}
	c.result.Versions = append(c.result.Versions, g.stateKey)
	c.result.Sizes = append(c.result.Sizes, g.size)
	c.result.Expiring = append(c.result.Expiring, g.expiring)
	c.result.Bytes += g.size
}

// stays records the expiry of a version that stays.
func (c *collector) stays(v *Version) {
	if v.Expires != 0 && (c.result.NextExpiry == 0 || v.Expires < c.result.NextExpiry) {
		c.result.NextExpiry = v.Expires
	}
}

// Remove adds to the batch the removal of versions that Garbage returned.
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
