package keys

import (
	"fmt"
	"time"
)

// The bounds of how long a value lives.
const (
	MinTTL = time.Millisecond
	MaxTTL = 10 * 365 * 24 * time.Hour
)

// NoTTL is, where a write says how long its value lives, that it does not expire, even if the
// keyspace says how long values live by default. 0 leaves it to the keyspace.
const NoTTL time.Duration = -1

// ValidateTTL says what is wrong with a time to live, which is not 0 or NoTTL.
func ValidateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return fmt.Errorf("a time to live of %s: it is from %s to %d days", ttl, MinTTL,
			MaxTTL/(24*time.Hour))
	}
	return nil
}

// ValidateDefaultTTL says what is wrong with the default of a keyspace, in milliseconds; 0 is none.
func ValidateDefaultTTL(millis uint64) error {
	if millis > uint64(MaxTTL.Milliseconds()) {
		return fmt.Errorf("a default time to live of %d ms: it is at most %d days", millis,
			MaxTTL/(24*time.Hour))
	}
	return nil
}
