package kv

import (
	"fmt"
	"math"
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

// WriteOption is an option of calls that write a value: Put, Increment, BatchPut, Set (for
// CompareAndSwap and Modify), and the Put of a Batch or a Txn: TTL, NoTTL, ExpiresAt.
type WriteOption interface{ write(*writeOptions) }

// writeOptions is the sum of the options of a write.
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

// TTLOption says how long a written value lives. It is an option of writes, and of Load.
type TTLOption struct {
	lifetime keys.Lifetime
	bad      string
}

// TTL lets a value live for d from its version's timestamp on: then it expires. A read at or above
// that time finds the key without a value, a read below it finds the value, on every replica and
// whatever their clocks show. An expired value is gone for compare-and-swap, counts and
// transactions too; it is removed later. A transaction's value lives from its commit on.
// Pair.Expires tells when a value expires.
//
// d is from MinTTL to MaxTTL; 0 is NoTTL. Without the option a write has the keyspace's DefaultTTL.
// A later write replaces the value together with its expiry.
func TTL(d time.Duration) TTLOption {
	if d == 0 {
		return NoTTL()
	}
	if err := keys.ValidateTTL(d); err != nil {
		return TTLOption{bad: err.Error()}
	}
	return TTLOption{lifetime: keys.For(d)}
}

// NoTTL lets a value live until it is replaced, even if the keyspace has a DefaultTTL.
func NoTTL() TTLOption { return TTLOption{lifetime: keys.Forever} }

// ExpiresAt lets a value live until t, for example as a dump or another database records it: a read
// at or above t finds the key without a value. If t is not above the timestamp of the version, the
// key has no value after the write. The zero time is NoTTL. Times from 1970 to 2262 can be written.
func ExpiresAt(t time.Time) TTLOption {
	lifetime, err := lifetimeUntil(t)
	if err != nil {
		return TTLOption{bad: err.Error()}
	}
	return TTLOption{lifetime: lifetime}
}

// Forever, as Pair.Expires of a pair to be written, means that the value does not expire, whatever
// the options of the call and the keyspace's DefaultTTL say. It is a time of 2262.
func Forever() time.Time { return time.Unix(0, math.MaxInt64).UTC() }

// lifetimeUntil returns the lifetime of a value that expires at t.
func lifetimeUntil(t time.Time) (keys.Lifetime, error) {
	switch wall := t.UnixNano(); {
	case t.IsZero() || t.Equal(Forever()):
		return keys.Forever, nil
	case wall <= 1 || !time.Unix(0, wall).Equal(t):
		return 0, fmt.Errorf("an expiry at %s: it is from 1970 to 2262", t.Format(time.RFC3339Nano))
	default:
		// An earlier time has passed long ago, whatever it is.
		return keys.Until(max(wall, keys.LeastMoment)), nil
	}
}

// lifetimeOf returns the lifetime of a pair to be written; usual is that of the call's options.
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

// DefaultTTLOption is how long values of a keyspace live by default, as it is created or altered.
type DefaultTTLOption struct{ ttl time.Duration }

// DefaultTTL is how long a value of the keyspace lives whose write does not say so: from MinTTL, in
// whole milliseconds, to MaxTTL; 0, the initial setting: until it is replaced. A change applies to
// later writes, as soon as the nodes have heard of it; existing values keep their expiry.
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

// expiryOf returns when a value expires, from the server's form; zero if it does not.
func expiryOf[T int64 | uint64](expires T) time.Time {
	if expires == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(expires)).UTC()
}
