package hlc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Timestamp is a hybrid logical timestamp. The zero value means "unset" and is below every other
// timestamp. Timestamps are comparable with ==.
type Timestamp struct {
	// Wall is nanoseconds since the Unix epoch. Never negative in a valid timestamp.
	Wall int64
	// Logical orders timestamps of the same Wall.
	Logical uint32
}

// MaxTimestamp is at or above every timestamp.
var MaxTimestamp = Timestamp{Wall: math.MaxInt64, Logical: math.MaxUint32}

// IsZero reports whether the timestamp is unset.
func (t Timestamp) IsZero() bool { return t == Timestamp{} }

// Less reports t < u.
func (t Timestamp) Less(u Timestamp) bool {
	return t.Wall < u.Wall || (t.Wall == u.Wall && t.Logical < u.Logical)
}

// LessEq reports t <= u.
func (t Timestamp) LessEq(u Timestamp) bool { return !u.Less(t) }

// Compare returns -1, 0 or 1, in the manner of cmp.Compare.
func (t Timestamp) Compare(u Timestamp) int {
	switch {
	case t.Less(u):
		return -1
	case u.Less(t):
		return 1
	}
	return 0
}

// Next is the lowest timestamp above t. MaxTimestamp has none and returns itself.
func (t Timestamp) Next() Timestamp {
	if t.Logical < math.MaxUint32 {
		return Timestamp{Wall: t.Wall, Logical: t.Logical + 1}
	}
	if t.Wall == math.MaxInt64 {
		return t
	}
	return Timestamp{Wall: t.Wall + 1}
}

// Prev is the highest timestamp below t. The zero timestamp has none and returns itself.
func (t Timestamp) Prev() Timestamp {
	if t.Logical > 0 {
		return Timestamp{Wall: t.Wall, Logical: t.Logical - 1}
	}
	if t.Wall == 0 {
		return t
	}
	return Timestamp{Wall: t.Wall - 1, Logical: math.MaxUint32}
}

// Add shifts the wall time by d and keeps the logical counter. It saturates: the result is never
// below zero nor above MaxTimestamp.
func (t Timestamp) Add(d time.Duration) Timestamp {
	wall := t.Wall + int64(d)
	switch {
	case d > 0 && wall < t.Wall:
		return MaxTimestamp
	case wall < 0:
		return Timestamp{}
	}
	return Timestamp{Wall: wall, Logical: t.Logical}
}

// Time is the wall part as a time.Time in UTC.
func (t Timestamp) Time() time.Time { return time.Unix(0, t.Wall).UTC() }

// Max returns the later of the two.
func Max(a, b Timestamp) Timestamp {
	if a.Less(b) {
		return b
	}
	return a
}

// Min returns the earlier of the two.
func Min(a, b Timestamp) Timestamp {
	if b.Less(a) {
		return b
	}
	return a
}

// FromTime is the timestamp of a time.Time, with logical 0. Times before the epoch give the zero
// timestamp.
func FromTime(t time.Time) Timestamp {
	return Timestamp{Wall: max(0, t.UnixNano())}
}

// String gives seconds, nanoseconds in nine digits, and the logical counter:
// "1763632000.123456789.3". Parse reads it back. For valid timestamps of the same number of seconds
// digits the strings sort as the timestamps do, up to the counter.
func (t Timestamp) String() string {
	var buf [48]byte
	b := buf[:0]
	seconds, nanos := t.Wall/int64(time.Second), t.Wall%int64(time.Second)
	if t.Wall < 0 {
		// Not valid, but it must be legible in the message that says so.
		b = append(b, '-')
		seconds, nanos = -seconds, -nanos
	}
	b = strconv.AppendInt(b, seconds, 10)
	b = append(b, '.')
	for div := int64(time.Second) / 10; div > 0; div /= 10 {
		b = append(b, byte('0'+nanos/div%10))
	}
	b = append(b, '.')
	b = strconv.AppendUint(b, uint64(t.Logical), 10)
	return string(b)
}

// Parse reads what String wrote: "seconds", "seconds.fraction" with one to nine digits, or
// "seconds.fraction.logical".
func Parse(s string) (Timestamp, error) {
	bad := func(why string) (Timestamp, error) {
		return Timestamp{}, fmt.Errorf(
			"timestamp %q: %s; want seconds[.fraction[.logical]], such as 1763632000.123456789.3",
			s,
			why,
		)
	}
	whole, rest, hasFraction := strings.Cut(s, ".")
	fraction, counter, hasLogical := strings.Cut(rest, ".")
	if !isDigits(whole) || (hasFraction && !isDigits(fraction)) ||
		(hasLogical && !isDigits(counter)) {
		return bad("not a number")
	}
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || seconds > math.MaxInt64/int64(time.Second) {
		return bad("out of range")
	}
	var nanos int64
	if hasFraction {
		if len(fraction) > 9 {
			return bad("finer than a nanosecond")
		}
		for i := range 9 {
			nanos *= 10
			if i < len(fraction) {
				nanos += int64(fraction[i] - '0')
			}
		}
	}
	wall := seconds*int64(time.Second) + nanos
	if wall < 0 {
		return bad("out of range")
	}
	var logical uint64
	if hasLogical {
		if logical, err = strconv.ParseUint(counter, 10, 32); err != nil {
			return bad("logical counter out of range")
		}
	}
	return Timestamp{Wall: wall, Logical: uint32(logical)}, nil
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
