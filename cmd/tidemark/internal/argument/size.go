package argument

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a flag that holds a number of bytes, written as 1048576, 1MiB or 1MB.
type Size uint64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// Set implements pflag.Value.
func (s *Size) Set(text string) error {
	number, unit := strings.TrimSpace(text), 1.0
	for _, u := range sizeUnits {
		if rest, found := strings.CutSuffix(number, u.name); found {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	value, err := strconv.ParseFloat(number, 64)
	if err != nil || value < 0 || math.IsNaN(value) || value*unit > math.MaxInt64/2 {
		return fmt.Errorf("write it as 512MiB, 2GiB or a number of bytes")
	}
	*s = Size(value * unit)
	return nil
}

// String implements pflag.Value. Zero, which leaves the size to a default, is not shown.
func (s *Size) String() string {
	if *s == 0 {
		return ""
	}
	for _, u := range []int{3, 2, 1, 0} {
		if unit := uint64(sizeUnits[u].bytes); uint64(*s) >= unit && uint64(*s)%unit == 0 {
			return strconv.FormatUint(uint64(*s)/unit, 10) + sizeUnits[u].name
		}
	}
	return strconv.FormatUint(uint64(*s), 10) + "B"
}

// Type implements pflag.Value.
func (s *Size) Type() string { return "size" }
