package drill

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"iter"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// Record is a record of a backup. Its slices are valid until the next one.
type Record struct {
	Key, Value []byte
	// Expires is the time at which the record expires. Zero means never.
	Expires time.Time
}

// Source has the functions that read both sides of a comparison.
type Source struct {
	// Stored reads the records of the backup, each key once. It may be called several times. If an
	// error occurs, it is the last thing that it yields.
	Stored func(context.Context) iter.Seq2[Record, error]
	// Get reads many keys of the restored keyspace, and returns a pair for each key, in the order of
	// the keys.
	Get func(ctx context.Context, keys [][]byte) ([]kv.Pair, error)
	// Scan reads the whole restored keyspace.
	Scan func(context.Context) iter.Seq2[kv.Pair, error]
	// Progress is called at times with the number of compared records. It may be nil.
	Progress func(compared uint64)
}

// Kind says how a record differs.
type Kind string

const (
	// Missing: the restored keyspace does not have the record.
	Missing Kind = "missing"
	// Other: the value in the restored keyspace differs.
	Other Kind = "another value"
	// OtherExpiry: the expiry in the restored keyspace differs.
	OtherExpiry Kind = "another expiry"
	// Extra: the backup does not have the record.
	Extra Kind = "not in the backup"
)

// Difference is a record that differs.
type Difference struct {
	Key  []byte
	Kind Kind
}

// Result is the result of Compare.
type Result struct {
	// Compared is the number of records of the backup that were looked up. Expired is the number of
	// records that have expired since the moment of the backup. They can no longer be read, and are
	// not compared.
	Compared, Expired uint64
	// Differences is the number of records that differ. First has the first of them, at most MaxNamed.
	Differences uint64
	First       []Difference
}

const (
	// MaxNamed is the maximum number of differing records that are named.
	MaxNamed = 10
	// batchRecords and batchBytes limit the records that are looked up at a time.
	batchRecords = 512
	batchBytes   = 4 << 20
)

// keysAtOnce is the approximate number of the backup's keys that are held in memory in the search
// for records that the backup does not have.
var keysAtOnce uint64 = 2 << 20

// Compare compares both sides. It returns an error only if a side cannot be read. Differences are
// in the result. The keyspace must not be written to meanwhile.
func Compare(ctx context.Context, s Source) (*Result, error) {
	if s.Progress == nil {
		s.Progress = func(uint64) {}
	}
	c := &comparison{Source: s, ctx: ctx, result: new(Result)}
	for r, err := range s.Stored(ctx) {
		if err != nil {
			return nil, err
		}
		if !r.Expires.IsZero() && !r.Expires.After(time.Now()) {
			c.result.Expired++
			continue
		}
		r.Key, r.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
		c.batch = append(c.batch, r)
		if c.bytes += len(r.Key) + len(r.Value); len(c.batch) < batchRecords && c.bytes < batchBytes {
			continue
		}
		if err := c.look(); err != nil {
			return nil, err
		}
	}
	if err := c.look(); err != nil {
		return nil, err
	}
	scanned := uint64(0)
	for _, err := range s.Scan(ctx) {
		if err != nil {
			return nil, err
		}
		scanned++
	}
	if scanned > c.found {
		return c.result, c.extras()
	}
	return c.result, nil
}

// comparison is the state of a running Compare.
type comparison struct {
	Source
	ctx    context.Context
	result *Result
	// batch has the records that are not looked up yet. Their size follows.
	batch []Record
	bytes int
	// found is the number of the backup's records that the restored keyspace has.
	found uint64
}

// differs records a difference.
func (c *comparison) differs(key []byte, kind Kind) {
	c.result.Differences++
	if len(c.result.First) < MaxNamed {
		c.result.First = append(c.result.First, Difference{bytes.Clone(key), kind})
	}
}

// look looks up the batch.
func (c *comparison) look() error {
	if len(c.batch) == 0 {
		return nil
	}
	userKeys := make([][]byte, len(c.batch))
	for i := range c.batch {
		userKeys[i] = c.batch[i].Key
	}
	pairs, err := c.Get(c.ctx, userKeys)
	if err != nil {
		return err
	}
	if len(pairs) != len(userKeys) {
		return fmt.Errorf("%d of %d keys were answered", len(pairs), len(userKeys))
	}
	for i, want := range c.batch {
		got := pairs[i]
		if !got.Exists() && !want.Expires.IsZero() && !want.Expires.After(time.Now()) {
			c.result.Expired++ // it expired a moment ago
			continue
		}
		c.result.Compared++
		if got.Exists() {
			c.found++
		}
		switch {
		case !got.Exists():
			c.differs(want.Key, Missing)
		case !bytes.Equal(got.Value, want.Value):
			c.differs(want.Key, Other)
		case !got.Expires.Equal(want.Expires):
			c.differs(want.Key, OtherExpiry)
		}
	}
	c.batch, c.bytes = c.batch[:0], 0
	c.Progress(c.result.Compared)
	return nil
}

// extras finds the records that the backup does not have.
func (c *comparison) extras() error {
	parts := c.result.Compared/keysAtOnce + 1
	seed := maphash.MakeSeed()
	for part := range parts {
		mine := func(key []byte) bool { return maphash.Bytes(seed, key)%parts == part }
		stored := make(map[string]struct{})
		for r, err := range c.Stored(c.ctx) {
			if err != nil {
				return err
			}
			if mine(r.Key) {
				stored[string(r.Key)] = struct{}{}
			}
		}
		for pair, err := range c.Scan(c.ctx) {
			if err != nil {
				return err
			}
			if _, there := stored[string(pair.Key)]; !there && mine(pair.Key) {
				c.differs(pair.Key, Extra)
			}
		}
	}
	return nil
}
