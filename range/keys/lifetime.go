package keys

import (
	"fmt"
	"math"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// The bounds of a time to live.
const (
	MinTTL = time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// Lifetime determines when a value expires. Requests carry a lifetime as a number
// (kvpb.PutRequest.ttl):
//
//	0       the keyspace's default decides (DefaultLifetime)
//	-1      the value does not expire (Forever)
//	> 0     a time to live in nanoseconds, from the timestamp of the version on
//	< -1    a moment: the negated wall time, in nanoseconds since the epoch, of the expiry
//
// A moment below LeastMoment is not valid: as a number it looks like a time to live with the wrong
// sign.
type Lifetime int64

const (
	// DefaultLifetime leaves the lifetime to the keyspace's default.
	DefaultLifetime Lifetime = 0
	// Forever is the lifetime of a value that does not expire, whatever the keyspace's default is.
	Forever Lifetime = -1
)

// LeastMoment is the earliest moment that a request can name, in nanoseconds since the epoch: it is
// in 1980. A value whose moment has passed when it is written exists at its own timestamp only.
const LeastMoment = int64(MaxTTL) + 1

// For is the lifetime of a value with a time to live of d, which is above 0.
func For(d time.Duration) Lifetime { return Lifetime(d) }

// Until is the lifetime of a value that expires at a wall time, in nanoseconds since the epoch,
// which is above 1.
func Until(wall int64) Lifetime { return Lifetime(-wall) }

// Moment returns the wall time at which the value expires, if the lifetime names a moment.
func (l Lifetime) Moment() (wall int64, ok bool) {
	switch {
	case l >= Forever:
		return 0, false
	case l == math.MinInt64:
		return math.MaxInt64, true
	}
	return -int64(l), true
}

// Or returns the lifetime, or for DefaultLifetime the keyspace's default, usual. A usual of 0 means
// that values do not expire.
func (l Lifetime) Or(usual time.Duration) Lifetime {
	switch {
	case l != DefaultLifetime:
		return l
	case usual > 0:
		return For(usual)
	}
	return Forever
}

// ExpiryOf returns the wall time at which the version of a timestamp expires, in nanoseconds since
// the epoch, and 0 for a version that does not expire. The expiry is above the timestamp's wall
// time: a value whose moment has passed exists at its own timestamp only.
func (l Lifetime) ExpiryOf(ts hlc.Timestamp) int64 {
	if moment, ok := l.Moment(); ok {
		if ts.Wall == math.MaxInt64 {
			return math.MaxInt64
		}
		return max(moment, ts.Wall+1)
	}
	switch {
	case l <= 0:
		return 0
	case ts.Wall > math.MaxInt64-int64(l):
		return math.MaxInt64
	}
	return ts.Wall + int64(l)
}

// Validate returns an error for a lifetime that is not valid in a request. A negative number above
// -LeastMoment is not valid, since it may be the remainder of a time to live that a client computed
// too late.
func (l Lifetime) Validate() error {
	moment, ok := l.Moment()
	switch {
	case ok && moment < LeastMoment:
		return fmt.Errorf("a lifetime of %d: a time to live is positive, -1 is for ever, and a moment "+
			"of expiry is negated, in nanoseconds since 1970, and not before 1980 (%d)", int64(l),
			-LeastMoment)
	case l <= 0:
		return nil
	}
	return ValidateTTL(time.Duration(l))
}

// String returns the lifetime in words.
func (l Lifetime) String() string {
	moment, ok := l.Moment()
	switch {
	case ok:
		return "until " + time.Unix(0, moment).UTC().Format(time.RFC3339Nano)
	case l == Forever:
		return "for ever"
	case l == DefaultLifetime:
		return "as the keyspace says"
	}
	return "for " + time.Duration(l).String()
}

// ValidateTTL returns an error for a time to live out of bounds. 0 means no time to live.
func ValidateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("a time to live of %s: it is from %s to %d days", ttl, MinTTL,
			MaxTTL/(24*time.Hour))
	}
	return nil
}

// ValidateDefaultTTL returns an error for a keyspace default out of bounds, in milliseconds. 0
// means no default.
func ValidateDefaultTTL(millis uint64) error {
	if millis > uint64(MaxTTL.Milliseconds()) {
		return fmt.Errorf("a default time to live of %d ms: it is at most %d days", millis,
			MaxTTL/(24*time.Hour))
	}
	return nil
}

// The limits of transactions that hold locks of a keyspace.
const (
	// DefaultTransactionAge is how long after its beginning an attempt may hold locks. It equals
	// the default GC window: a transaction with reads cannot commit much later anyway.
	DefaultTransactionAge = time.Hour
	// DefaultTransactionIdle is how long the application may make no call while the attempt holds
	// locks. It exceeds the usual time-outs of calls to other services, and the time in which a
	// person types a line.
	DefaultTransactionIdle = 2 * time.Minute
	// MinTransactionLimit and MaxTransactionLimit bound a keyspace's limits. Without a limit,
	// servers would have to accept every age that a client claims.
	MinTransactionLimit = time.Second
	MaxTransactionLimit = 7 * 24 * time.Hour
)
