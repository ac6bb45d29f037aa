package output

import (
	"fmt"
	"strings"
)

// Format is a value of --output.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	TSV   Format = "tsv"
	Raw   Format = "raw"
)

// Formats has all formats, for help texts and completion.
var Formats = []string{string(Table), string(JSON), string(TSV), string(Raw)}

// ParseFormat reads a value of --output.
func ParseFormat(name string) (Format, error) {
	for _, known := range Formats {
		if name == known {
			return Format(name), nil
		}
	}
	return "", fmt.Errorf("unknown output format %q: use one of %s",
		name, strings.Join(Formats, ", "))
}
