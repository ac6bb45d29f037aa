package mvcc

import (
	"bytes"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// ChangesOptions say which versions to read.
type ChangesOptions struct {
	// Span is a span of internal keys.
	Span keys.Span
	// After and Upto bound the versions: above After, and at or below Upto.
	After, Upto hlc.Timestamp
	// AfterOfFirst replaces After for the key Span.Start, if it is higher.
	AfterOfFirst hlc.Timestamp
	// MaxBytes ends the read before a version with which keys and values would exceed it, in bytes;
	// the first version is emitted in any case. 0: no limit.
	MaxBytes int64
	// Overhead is the number of bytes that each version counts beside its key and value.
	Overhead int64
	// MaxSkipped ends the read after so many unchanged keys, so that the work of a call is bounded.
	// 0: no limit.
	MaxSkipped int
}

// ChangesResult says how a read of changes ended.
type ChangesResult struct {
	// More is set if a limit ended the read. The next read has Resume as the start of its span, and
	// ResumeVersion as AfterOfFirst. Resume is a copy.
	More          bool
	Resume        []byte
	ResumeVersion hlc.Timestamp
	// CommitWaitUntil is as in ScanResult.
	CommitWaitUntil hlc.Timestamp
}

const (
	// maxGathered bounds the versions of a key, and maxGatheredBytes their bytes, that are buffered
	// while the iterator steps down from the newest version. For a key with more, the read seeks
	// the oldest version and steps up.
	maxGathered      = 16
	maxGatheredBytes = 64 << 10
)

// Changes reads the versions that were written in a span between two timestamps, including
// tombstones, in the order of the keys, and of each key the oldest first. It passes them to emit,
// whose arguments are valid until it returns. An error of emit ends the read and is returned.
//
// Blocks are skipped by the timestamps in them: a read of the latest changes costs about as much as
// there are changes. Expired versions are emitted as they were written.
func Changes(r engine.Reader, o ChangesOptions,
	emit func(key []byte, v Version) error) (ChangesResult, error) {
	if o.Span.Empty() || !o.After.Less(o.Upto) || o.Upto.Wall < 0 {
		return ChangesResult{}, nil
	}
	bounds := keys.DataSpan(o.Span)
	// INVARIANT: a filter hides the removal of a version only together with the version: both have
	// its timestamp. Versions that pass the filter are compared exactly.
	filters := append(make([]pebble.BlockPropertyFilter, 0, 2), // Pebble adds one in place
		cockroachkvs.NewMVCCTimeIntervalFilter(uint64(max(0, o.After.Wall)), uint64(o.Upto.Wall)))
	iter, err := r.NewIter(&pebble.IterOptions{LowerBound: bounds.Start, UpperBound: bounds.End,
		PointKeyFilters: filters})
	if err != nil {
		return ChangesResult{}, fmt.Errorf("changes in %s: %w", o.Span, err)
	}
	c := changes{iter: iter, o: &o, emit: emit}
	err = c.run()
	if closeErr := iter.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return ChangesResult{}, fmt.Errorf("changes in %s: %w", o.Span, err)
	}
	return c.result, nil
}

// changes is the state of a running Changes.
type changes struct {
	iter   *pebble.Iterator
	o      *ChangesOptions
	emit   func(key []byte, v Version) error
	result ChangesResult

	// prefix is the unversioned data key of the key being looked at; key is the internal key in it.
	prefix []byte
	// after is the timestamp above which versions of this key are read; shown is the timestamp of
	// the last version emitted, by this read or an earlier page, zero if none was.
	after, shown hlc.Timestamp
	// climbed is set while the iterator may still stand on a version of the key.
	climbed bool
	// gathered are the key's versions, the newest first; their values lie in values.
	gathered []Version
	values   []byte
	seek     []byte

	emitted int
	bytes   int64
	skipped int
}

func (c *changes) key() []byte { return c.prefix[1 : len(c.prefix)-1] }

// run goes from key to key.
func (c *changes) run() error {
	for ok := c.iter.First(); ok; {
		c.prefix = append(c.prefix[:0], dataPrefix(c.iter.Key())...)
		c.after, c.shown = c.o.After, hlc.Timestamp{}
		if c.o.After.Less(c.o.AfterOfFirst) && bytes.Equal(c.key(), c.o.Span.Start) {
			c.after, c.shown = c.o.AfterOfFirst, c.o.AfterOfFirst
		}
		if c.o.MaxSkipped > 0 && c.skipped >= c.o.MaxSkipped {
			c.result.More, c.result.Resume = true, bytes.Clone(c.key())
			return nil
		}
		all, err := c.gather()
		if err != nil {
			return err
		}
		if len(c.gathered) == 0 {
			c.skipped++
		}
		done := false
		if all {
			done, err = c.emitGathered()
		} else {
			done, err = c.climb()
		}
		if done || err != nil {
			return err
		}
		ok = c.nextKey()
	}
	return c.iter.Error()
}

// gather collects the versions of the key, the newest first. It returns false if there are too
// many.
func (c *changes) gather() (all bool, err error) {
	c.gathered, c.values = c.gathered[:0], c.values[:0]
	for steps := 0; ; steps++ {
		_, v, err := decode(c.iter)
		if err != nil {
			return false, err
		}
		switch {
		case v.Timestamp.LessEq(c.after):
			return true, nil
		case c.o.Upto.Less(v.Timestamp):
			if steps >= maxSteps {
				c.seek = keys.AppendTimestamp(append(c.seek[:0], c.prefix...), c.o.Upto)
				if !c.iter.SeekGE(c.seek) || !c.sameKey() {
					return true, nil
				}
				continue
			}
		case len(c.gathered) == maxGathered || len(c.values)+len(v.Value) > maxGatheredBytes &&
			len(c.gathered) > 0:
			return false, nil
		default:
			start := len(c.values)
			c.values = append(c.values, v.Value...)
			v.Value = c.values[start:len(c.values):len(c.values)]
			c.gathered = append(c.gathered, v)
		}
		if !c.iter.Next() || !c.sameKey() {
			return true, nil
		}
	}
}

// emitGathered emits all versions of the key.
func (c *changes) emitGathered() (done bool, err error) {
	for i := len(c.gathered) - 1; i >= 0; i-- {
		if done, err := c.show(&c.gathered[i]); done || err != nil {
			return true, err
		}
	}
	return false, nil
}

// climb emits the versions of a key that has many, from the oldest upwards.
func (c *changes) climb() (done bool, err error) {
	c.climbed = true
	if c.after.IsZero() { // it would stand for the unversioned key, before all versions
		c.seek = append(append(c.seek[:0], c.prefix...), 0x00)
	} else {
		c.seek = keys.AppendTimestamp(append(c.seek[:0], c.prefix...), c.after)
	}
	for ok := c.iter.SeekLT(c.seek); ok && c.sameKey(); ok = c.iter.Prev() {
		_, v, err := decode(c.iter)
		if err != nil {
			return true, err
		}
		if c.o.Upto.Less(v.Timestamp) {
			break
		}
		if done, err := c.show(&v); done || err != nil {
			return true, err
		}
	}
	return false, c.iter.Error()
}

// show emits a version; done is set if the page ends before it.
func (c *changes) show(v *Version) (done bool, err error) {
	size := int64(len(c.key())+len(v.Value)) + c.o.Overhead
	if c.o.MaxBytes > 0 && c.emitted > 0 && c.bytes+size > c.o.MaxBytes {
		c.result.More, c.result.Resume, c.result.ResumeVersion = true, bytes.Clone(c.key()), c.shown
		return true, nil
	}
	if v.CommitWait {
		c.result.CommitWaitUntil = hlc.Max(c.result.CommitWaitUntil, v.Timestamp)
	}
	if err := c.emit(c.key(), *v); err != nil {
		return true, err
	}
	c.emitted++
	c.bytes += size
	c.shown = v.Timestamp
	return false, nil
}

// nextKey moves past the versions of the key.
func (c *changes) nextKey() bool {
	switch {
	case !c.iter.Valid() && !c.climbed:
		return false
	case c.climbed:
		c.climbed = false
		c.seek = append(append(c.seek[:0], c.prefix...), 0x00) // the key after it, unversioned
		return c.iter.SeekGE(c.seek)
	case c.sameKey():
		return c.iter.NextPrefix()
	}
	return true
}

func (c *changes) sameKey() bool { return bytes.Equal(dataPrefix(c.iter.Key()), c.prefix) }
