package kv

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// MinTTL and MaxTTL bound how long a value lives, if not for ever.
	MinTTL = time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// The servers have the same bounds.
var _ = [1]struct{}{}[(MinTTL-keys.MinTTL)|(MaxTTL-keys.MaxTTL)]

// WriteOption is an option of what writes a value: Put, Increment, BatchPut, Set (for
// CompareAndSwap and Modify), and the Put of a Batch or a Txn: TTL, NoTTL.
type WriteOption interface{ write(*writeOptions) }

// writeOptions are what the options of a write add up to.
type writeOptions struct {
	// ttl is as requests have it: 0 is the keyspace's default, keys.NoTTL none.
	ttl time.Duration
	bad string
}

func newWriteOptions(options []WriteOption) (w writeOptions) {
	for _, o := range options {
		o.write(&w)
	}
	return w
}

// TTLOption says how long what is written lives. It is an option of writes, and of Load.
type TTLOption struct{ ttl time.Duration }

// TTL lets a value live for d from its version's timestamp on: then it expires. A read at or above
// that moment finds the key without a value, a read below it finds the value, on every replica and
// whatever their clocks show. What has expired is gone for compare-and-set, counts and transactions
// too; it is removed later. A transaction's value lives from its commit on. Pair.Expires tells when
// a value expires.
//
// d is from MinTTL to MaxTTL; 0 is NoTTL. A write without the option goes by the keyspace's
// DefaultTTL. A later write replaces the value together with its expiry.
func TTL(d time.Duration) TTLOption {
	if d == 0 {
		d = keys.NoTTL
	} else if d == keys.NoTTL {
		d = -2 // no value lives for less than no time
	}
	return TTLOption{d}
}

// NoTTL lets a value live until it is replaced, even if the keyspace has a DefaultTTL.
func NoTTL() TTLOption { return TTLOption{keys.NoTTL} }

func (o TTLOption) write(w *writeOptions) {
	w.ttl = o.ttl
	if o.ttl != keys.NoTTL {
		if err := keys.ValidateTTL(o.ttl); err != nil {
			w.bad = err.Error()
		}
	}
}

func (o TTLOption) load(s *loadSettings) { o.write(&s.writes) }

// DefaultTTLOption is how long values of a keyspace live by default, as it is created or altered.
type DefaultTTLOption struct{ ttl time.Duration }

// DefaultTTL is how long a value of the keyspace lives whose write does not say so: from MinTTL, in
// whole milliseconds, to MaxTTL; 0: until it is replaced, which is what a keyspace begins with.
// Altered, it counts for what is written afterwards, as soon as the nodes have heard of it; values
// that are there keep the expiry that they have.
func DefaultTTL(d time.Duration) DefaultTTLOption { return DefaultTTLOption{d} }

func (o DefaultTTLOption) create(s *keyspaceSettings) { o.alter(s) }

func (o DefaultTTLOption) alter(s *keyspaceSettings) {
	if o.ttl != 0 {
		if err := keys.ValidateTTL(o.ttl); err != nil {
			s.refuse("%v", err)
		} else if o.ttl%time.Millisecond != 0 {
			s.refuse("a default time to live of %s: give whole milliseconds", o.ttl)
		}
	}
	millis := uint64(max(0, o.ttl.Milliseconds()))
	s.defaultTTL = &millis
}

// expiryOf is when a value expires, of which the server says this; zero if it does not.
func expiryOf[T int64 | uint64](expires T) time.Time {
	if expires == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(expires)).UTC()
}
