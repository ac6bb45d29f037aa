package argument

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// The load generator replaces 0 by defaults, so zeros that users give are refused here. The load
// generator refuses other invalid values itself.

// AtLeast refuses a value below the least.
func AtLeast[N int | uint64 | time.Duration](flag string, value, least N) error {
	if value < least {
		return exit.Usagef("--%s %v: it is at least %d", flag, value, least)
	}
	return nil
}

// Between refuses a value below least or above most.
func Between(flag string, value, least, most int) error {
	if value < least || value > most {
		return exit.Usagef("--%s %d: it is %d to %d", flag, value, least, most)
	}
	return nil
}

// Positive refuses values that are not positive.
func Positive(flag string, value time.Duration) error {
	if value <= 0 {
		return exit.Usagef("--%s %s: it is positive", flag, value)
	}
	return nil
}

// NoneOrAll refuses numbers of keys below 0, except -1 for all.
func NoneOrAll(flag string, value int) error {
	if value < -1 {
		return exit.Usagef("--%s %d: it is at least 0, or -1 for all", flag, value)
	}
	return nil
}

var secondWord = regexp.MustCompile(`([a-z])([A-Z])`)

// FlagError names the flag for an error of the load generator. Except for the rows of a scan, the
// flag has the name of the field.
func FlagError(err error) error {
	var wrong *bench.InvalidError
	if !errors.As(err, &wrong) {
		return err
	}
	flag := strings.ToLower(secondWord.ReplaceAllString(wrong.Field, "$1-$2"))
	if wrong.Field == "ScanRows" {
		flag = "rows"
	}
	return exit.Usagef("--%s %v: %s", flag, wrong.Value, wrong.Reason)
}
