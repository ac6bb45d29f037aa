package output

import (
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Change is one line of a change feed: a put, a delete, or progress, which has no key.
type Change struct {
	Timestamp, Kind string
	Key, Value      []byte
	// HasValue: it is a put. Expires is when the value does; zero: it does not.
	HasValue bool
	Expires  time.Time
}

// kindWidth and timestampWidth are the columns of a table of changes.
const (
	kindWidth      = len("progress")
	timestampWidth = len("1795000000.000000000.00")
)

// AppendChangesHead appends the line that comes before all others, if the format has one.
func AppendChangesHead(dst []byte, format Format) []byte {
	switch format {
	case Table:
		dst = padded(dst, "TIMESTAMP", timestampWidth)
		return append(padded(dst, "KIND", kindWidth), "KEY  VALUE\n"...)
	case TSV:
		return append(dst, "timestamp\tkind\tkey\tvalue\n"...)
	}
	return dst
}

// AppendChange appends a line.
func AppendChange(dst []byte, format Format, c *Change) []byte {
	switch format {
	case JSON:
		dst = append(append(dst, `{"timestamp":"`...), c.Timestamp...)
		dst = append(append(append(dst, `","kind":"`...), c.Kind...), '"')
		if c.Key == nil {
			return append(dst, '}', '\n')
		}
		begins := len(dst)
		dst = records.AppendJSONObject(dst, records.Record{Key: c.Key, Value: c.Value,
			Expires: c.Expires}, !c.HasValue)
		dst[begins] = ','
	case TSV:
		dst = append(append(dst, c.Timestamp...), '\t')
		dst = append(append(dst, c.Kind...), '\t')
		dst = append(records.AppendEscaped(dst, c.Key), '\t')
		dst = records.AppendEscaped(dst, c.Value)
	case Raw:
		dst = append(append(dst, c.Timestamp...), '\t')
		dst = append(append(dst, c.Kind...), '\t')
		dst = append(append(append(dst, c.Key...), '\t'), c.Value...)
	default:
		dst = padded(dst, c.Timestamp, timestampWidth)
		if c.Key == nil {
			return append(append(dst, c.Kind...), '\n')
		}
		dst = append(padded(dst, c.Kind, kindWidth), records.Escape(c.Key)...)
		if c.HasValue {
			dst = append(append(dst, "  "...), records.Escape(c.Value)...)
		}
	}
	return append(dst, '\n')
}

// padded appends a cell and what is between it and the next one.
func padded(dst []byte, cell string, width int) []byte {
	dst = append(dst, cell...)
	for range max(width-len(cell), 0) + between {
		dst = append(dst, ' ')
	}
	return dst
}
