package keys

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// TestAddNumberBesideBig: whatever two numbers are added, the sum is that of integers without
// bounds, or is refused because it has more than 64 bits.
func TestAddNumberBesideBig(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, by := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "by")
		want := new(big.Int).Add(big.NewInt(a), big.NewInt(by))
		sum, err := AddNumber(FormatNumber(a), true, by)
		if want.IsInt64() != (err == nil) || err == nil && want.Int64() != sum {
			t.Fatalf("%d and %d: %d, %v", a, by, sum, err)
		}
	})
}

// TestParseNumber: what is not a number is refused, and nothing that was formatted is.
func TestParseNumber(t *testing.T) {
	for _, n := range []int64{0, 1, -1, math.MaxInt64, math.MinInt64} {
		if got, err := ParseNumber(FormatNumber(n)); got != n || err != nil {
			t.Errorf("%d: %d, %v", n, got, err)
		}
		if len(FormatNumber(n)) > MaxNumberLength {
			t.Errorf("%d is longer than the longest number", n)
		}
	}
	for _, bad := range []string{"", " 1", "1.5", "0x10", "9223372036854775808", "ten", "\x00\xff",
		"1_000",
		"00000000000000000000000000000001"} {
		if n, err := ParseNumber([]byte(bad)); err == nil {
			t.Errorf("%q is %d", bad, n)
		}
	}
	if n, err := AddNumber(nil, false, -5); n != -5 || err != nil {
		t.Errorf("a key without a value: %d, %v", n, err)
	}
	if _, err := AddNumber(nil, true, 1); err == nil {
		t.Error("an empty value is a number")
	}
}
