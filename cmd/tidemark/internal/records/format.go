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
	// Expires is when the value expires; zero: never. A Reader leaves it out: a load does not restore
	// it.
	Expires time.Time
}

// Limits bound what a Reader takes. Zero means no limit.
type Limits struct {
	Key, Value int
}

// longestLine is how long a line can be that holds a record within the limits: six bytes for one at
// worst (\u00NN in JSON), and the names around.
func (l Limits) longestLine() int {
	if l.Key == 0 || l.Value == 0 {
		return 1 << 30
	}
	return 6*(l.Key+l.Value) + 256
}

// LineError is what is wrong with one line.
type LineError struct {
	Line uint64 // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

// Unwrap returns what is wrong, without the line.
func (e *LineError) Unwrap() error { return e.Err }
