package keys

import (
	"fmt"
	"math"
	"strconv"
)

// A number is a value that Increment adds to: a decimal number of 64 bits with a sign, as people
// write it ("42", "-7"). So `put` can set a number, and `get` shows it.

// MaxNumberLength is the length of the longest number, in bytes.
const MaxNumberLength = 20

// ParseNumber parses a number. The error says what the value holds instead.
func ParseNumber(value []byte) (int64, error) {
	if len(value) > MaxNumberLength {
		return 0, fmt.Errorf("the value of %d bytes is not a decimal number of 64 bits", len(value))
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the value %q is not a decimal number of 64 bits", value)
	}
	return n, nil
}

// AddNumber adds `by` to the number in a key's value; a key without a value counts as 0. A sum
// beyond 64 bits is an error.
func AddNumber(value []byte, exists bool, by int64) (sum int64, err error) {
	if exists {
		if sum, err = ParseNumber(value); err != nil {
			return 0, err
		}
	}
	if by > 0 && sum > math.MaxInt64-by || by < 0 && sum < math.MinInt64-by {
		return 0, fmt.Errorf("the sum of %d and %d does not fit into 64 bits", sum, by)
	}
	return sum + by, nil
}

// FormatNumber returns the value that represents a number.
func FormatNumber(n int64) []byte { return strconv.AppendInt(nil, n, 10) }
