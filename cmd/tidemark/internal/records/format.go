package records

import (
	"fmt"
	"strings"
	"time"
)

// Format is a file format of load and dump.
type Format string

// The formats.
const (
	TSV   Format = "tsv"
	JSONL Format = "jsonl"
)

// ParseFormat reads the name of a format.
func ParseFormat(name string) (Format, error) {
	switch f := Format(strings.ToLower(name)); f {
	case TSV, JSONL:
		return f, nil
	}
	return "", fmt.Errorf("unknown file format %q: use tsv or jsonl", name)
}

// FormatOfFile guesses the format from a file name; without a known ending it is TSV.
func FormatOfFile(name string) Format {
	for _, ending := range []string{".jsonl", ".ndjson", ".json"} {
		if strings.HasSuffix(strings.ToLower(name), ending) {
			return JSONL
		}
	}
	return TSV
}

// Record is one key with its value.
type Record struct {
	Key, Value []byte
	// Expires is the expiry of the value. It is zero if the record does not give one.
	Expires time.Time
	// Forever: the value does not expire, and Expires is zero.
	Forever bool
}

// never is the expiry of a record with Forever.
const never = "never"

// appendExpiry appends the expiry, if the record says it.
func (r *Record) appendExpiry(dst []byte) (_ []byte, said bool) {
	switch {
	case r.Forever:
		return append(dst, never...), true
	case r.Expires.IsZero():
		return dst, false
	}
	return r.Expires.UTC().AppendFormat(dst, time.RFC3339Nano), true
}

// parseExpiry is the reverse of appendExpiry.
func (r *Record) parseExpiry(text string) error {
	if text == never {
		r.Forever = true
		return nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("the expiry %q is not a time like 2030-01-31T12:00:00Z, nor %q",
			Escape([]byte(text)), never)
	}
	if r.Expires = t.UTC(); t.UnixNano() <= 1 || !time.Unix(0, t.UnixNano()).Equal(t) {
		return fmt.Errorf("the expiry %s is not between 1970 and 2262", text)
	}
	return nil
}

// Limits limit the records that a Reader accepts. Zero means no limit.
type Limits struct {
	Key, Value int
}

// longestLine returns the largest length of a line with a record within the limits: at worst six
// bytes for one byte (\u00NN in JSON), plus the field names.
func (l Limits) longestLine() int {
	if l.Key == 0 || l.Value == 0 {
		return 1 << 30
	}
	return 6*(l.Key+l.Value) + 512
}

// LineError is the error of one line.
type LineError struct {
	Line uint64 // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns the error without the line.
func (e *LineError) Unwrap() error { return e.Err }
