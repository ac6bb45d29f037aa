package output

import (
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Change is one line of a change feed: a put, a delete, or progress, which has no key.
type Change struct {
	Timestamp, Kind string
	Key, Value      []byte
	// HasValue is set if the change is a put. Expires is the value's expiry. It is zero if the value
	// does not expire.
	HasValue bool
	Expires  time.Time
}

// kindWidth and timestampWidth are the widths of columns in a table of changes.
const (
	kindWidth      = len("progress")
	timestampWidth = len("1795000000.000000000.00")
)

// Changes prints the lines of a change feed.
type Changes struct {
	Format Format
	Screen Screen
	// Cut is set if a line of a table was shortened.
	Cut bool
}

// AppendHead appends the header line, if the format has one.
func (p *Changes) AppendHead(dst []byte) []byte {
	switch {
	case p.Format == Table:
		return p.fit(dst, len(dst), append(padded(padded(dst, "TIMESTAMP", timestampWidth), "KIND",
			kindWidth), "KEY  VALUE\n"...))
	case p.Format == TSV && p.Screen.Headers:
		return append(dst, "timestamp\tkind\tkey\tvalue\n"...)
	}
	return dst
}

// Append appends a line.
func (p *Changes) Append(dst []byte, c *Change) []byte {
	if p.Format == Table && p.Screen.Width > 0 {
		return p.fit(dst, len(dst), appendChange(dst, p.Format, c))
	}
	return appendChange(dst, p.Format, c)
}

// fit shortens a line of a table. The line begins at begin in longer.
func (p *Changes) fit(dst []byte, begin int, longer []byte) []byte {
	line, cut := Fit(strings.TrimSuffix(string(longer[begin:]), "\n"), p.Screen.columns())
	if !cut {
		return longer
	}
	p.Cut = true
	return append(append(dst, line...), '\n')
}

// appendChange appends a line without shortening it.
func appendChange(dst []byte, format Format, c *Change) []byte {
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

// padded appends a cell and the gap to the next one.
func padded(dst []byte, cell string, width int) []byte {
	dst = append(dst, cell...)
	for range max(width-len(cell), 0) + between {
		dst = append(dst, ' ')
	}
	return dst
}
