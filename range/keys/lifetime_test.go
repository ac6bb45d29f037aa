package keys

import (
	"math"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

func TestExpiryOf(t *testing.T) {
	for _, c := range []struct {
		wall     int64
		lifetime Lifetime
		want     int64
	}{
		{5, DefaultLifetime, 0}, {5, Forever, 0}, {5, For(7), 12},
		{math.MaxInt64 - 3, For(4), math.MaxInt64},
		{5, Until(9), 9}, {5, Until(6), 6},
		// A moment that has passed is just above the timestamp: an expiry never lies below its version.
		{5, Until(5), 6}, {5, Until(2), 6}, {math.MaxInt64, Until(2), math.MaxInt64},
		{5, Until(math.MaxInt64), math.MaxInt64}, {5, math.MinInt64, math.MaxInt64},
	} {
		if got := c.lifetime.ExpiryOf(hlc.Timestamp{Wall: c.wall}); got != c.want {
			t.Errorf("at %d, %s: %d, want %d", c.wall, c.lifetime, got, c.want)
		}
	}
}

func TestLifetimeOr(t *testing.T) {
	for _, l := range []Lifetime{Forever, For(MinTTL), Until(1e18)} {
		if got := l.Or(time.Hour); got != l {
			t.Errorf("%s is %s beside a default", l, got)
		}
	}
	if got := DefaultLifetime.Or(time.Hour); got != For(time.Hour) {
		t.Errorf("with a default of an hour: %s", got)
	}
	if got := DefaultLifetime.Or(0); got != Forever {
		t.Errorf("without a default: %s", got)
	}
}

func TestLifetimeValidate(t *testing.T) {
	for _, l := range []Lifetime{DefaultLifetime, Forever, Until(LeastMoment), Until(math.MaxInt64),
		math.MinInt64, For(MinTTL), For(MaxTTL)} {
		if err := l.Validate(); err != nil {
			t.Errorf("%s: %v", l, err)
		}
	}
	// A time to live that has become negative is no moment of 1970.
	for _, l := range []Lifetime{For(1), For(MaxTTL + 1), -2, Lifetime(-5 * time.Second),
		Lifetime(-MaxTTL), Until(LeastMoment - 1)} {
		if l.Validate() == nil {
			t.Errorf("%s is valid", l)
		}
	}
}
