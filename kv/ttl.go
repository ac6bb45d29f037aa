package kv

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// MinTTL and MaxTTL are the limits of the time to live of a value.
	MinTTL = time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// The servers have the same limits.
var _ = [1]struct{}{}[(MinTTL-keys.MinTTL)|(MaxTTL-keys.MaxTTL)]

// WriteOption is an option of calls that write a value: Put, Increment, BatchPut, Set (for
// CompareAndSwap and Modify), and Put of a Batch or a Txn. The options are TTL, NoTTL, ExpiresAt.
type WriteOption interface{ write(*writeOptions) }

// writeOptions collects the options of a write.
type writeOptions struct {
	lifetime keys.Lifetime
	bad      string
}

func newWriteOptions(options []WriteOption) (w writeOptions) {
	for _, o := range options {
		o.write(&w)
	}
	return w
}

// TTLOption sets the time to live of a written value. It is an option of writes, and of Load.
type TTLOption struct {
	lifetime keys.Lifetime
	bad      string
}

// TTL makes a value expire at the time d after the timestamp of its version. A read at or above
// that time finds the key without a value, and a read below it finds the value. That is so on every
// replica, whatever their clocks show. For compare-and-swap, counts and transactions an expired
// value does not exist either. It is removed from the disk later. For a value that a transaction
// writes, the time starts at the commit. Pair.Expires tells when a value expires.
//
// d is from MinTTL to MaxTTL. 0 is the same as NoTTL. A write without the option has the keyspace's
// DefaultTTL. A later write replaces the value together with its expiry.
func TTL(d time.Duration) TTLOption {
	if d == 0 {
		return NoTTL()
	}
	if err := keys.ValidateTTL(d); err != nil {
		return TTLOption{bad: err.Error()}
	}
	return TTLOption{lifetime: keys.For(d)}
}

// NoTTL makes a value live until it is replaced, even if the keyspace has a DefaultTTL.
func NoTTL() TTLOption { return TTLOption{lifetime: keys.Forever} }

// ExpiresAt makes a value expire at t, for example as a dump or another database has recorded it: a
// read at or above t finds the key without a value. If t is not above the timestamp of the version,
// the key has no value after the write. The zero time is the same as NoTTL. Times from 1970 to 2262
// are allowed.
func ExpiresAt(t time.Time) TTLOption {
	lifetime, err := lifetimeUntil(t)
	if err != nil {
		return TTLOption{bad: err.Error()}
	}
	return TTLOption{lifetime: lifetime}
}

// Forever is a value for Pair.Expires in a pair to be written: the value does not expire, whatever
// the options of the call and the keyspace's DefaultTTL say. It is a time in the year 2262.
func Forever() time.Time { return time.Unix(0, math.MaxInt64).UTC() }

// lifetimeUntil returns the lifetime of a value that expires at t.
func lifetimeUntil(t time.Time) (keys.Lifetime, error) {
	switch wall := t.UnixNano(); {
	case t.IsZero() || t.Equal(Forever()):
		return keys.Forever, nil
	case wall <= 1 || !time.Unix(0, wall).Equal(t):
		return 0, fmt.Errorf("an expiry at %s: it is from 1970 to 2262", t.Format(time.RFC3339Nano))
	default:
		// A time before the least moment has passed long ago. Its exact value does not matter.
		return keys.Until(max(wall, keys.LeastMoment)), nil
	}
}

// lifetimeOf returns the lifetime of a pair to be written. usual is the lifetime according to the
// call's options.
func (p *Pair) lifetimeOf(usual keys.Lifetime) (keys.Lifetime, error) {
	if p.Expires.IsZero() {
		return usual, nil
	}
	return lifetimeUntil(p.Expires)
}

func (o TTLOption) write(w *writeOptions) {
	w.lifetime = o.lifetime
	if o.bad != "" {
		w.bad = o.bad
	}
}

func (o TTLOption) load(s *loadSettings) { o.write(&s.writes) }

// DefaultTTLOption sets the default time to live of a keyspace's values, when the keyspace is
// created or altered.
type DefaultTTLOption struct{ ttl time.Duration }

// DefaultTTL sets the time to live of values whose write has no option for it: from MinTTL, in
// whole milliseconds, to MaxTTL. 0, the initial setting, means that values live until they are
// replaced. A change applies to later writes, as soon as the nodes know of the change. Existing
// values keep their expiry.
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

// expiryOf converts an expiry of the server to a time. The result is zero if the value does not
// expire.
func expiryOf[T int64 | uint64](expires T) time.Time {
	if expires == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(expires)).UTC()
}
