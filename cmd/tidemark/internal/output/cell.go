package output

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Cell is a cell with different text for people and programs, or with a tone.
type Cell struct {
	People, Programs any
	Tone             Tone
}

// Toned returns a cell with a tone.
func Toned(cell any, tone Tone) Cell { return Cell{People: cell, Programs: cell, Tone: tone} }

// Health returns yes in the tone of a good state, or no in the tone of a bad state.
func Health(well bool) Cell {
	if well {
		return Toned(true, Good)
	}
	return Toned(false, Bad)
}

func toneOf(cell any) Tone {
	if c, ok := cell.(Cell); ok {
		return c.Tone
	}
	return Plainly
}

// people returns a cell's value for a table.
func people(cell any) any {
	if c, ok := cell.(Cell); ok {
		return c.People
	}
	return cell
}

// programs returns a cell's value for the other formats.
func programs(cell any) any {
	if c, ok := cell.(Cell); ok {
		return c.Programs
	}
	return cell
}

// appendJSON appends a cell as a JSON value: numbers as numbers, durations in seconds, and text
// with everything escaped that a terminal would act on.
func appendJSON(dst []byte, cell any) ([]byte, error) {
	switch c := cell.(type) {
	case []byte: // nil: other byte slices have names of their own
		return append(dst, "null"...), nil
	case string:
		return records.AppendJSONString(dst, strings.ToValidUTF8(c, "\uFFFD")), nil
	case Size:
		return strconv.AppendUint(dst, uint64(c), 10), nil
	case time.Duration:
		return strconv.AppendFloat(dst, c.Seconds(), 'f', -1, 64), nil
	case []string:
		dst = append(dst, '[')
		for i, text := range c {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = records.AppendJSONString(dst, strings.ToValidUTF8(text, "\uFFFD"))
		}
		return append(dst, ']'), nil
	case fmt.Stringer:
		return records.AppendJSONString(dst, c.String()), nil
	}
	value, err := json.Marshal(cell)
	return append(dst, value...), err
}

func tableCell(cell any) string {
	switch c := cell.(type) {
	case nil:
		return "-"
	case []byte:
		return records.Escape(c)
	case bool:
		if c {
			return "yes"
		}
		return "no"
	case Size:
		return c.String()
	}
	return records.Escape(plainBytes(cell))
}

// rawCell returns a cell in the format raw. Keys and values stay as they are. In all other texts,
// also those of servers and errors, characters that a terminal would act on are escaped, and so are
// those that end a cell or a line.
func rawCell(cell any) string {
	if c, ok := cell.([]byte); ok {
		return string(c)
	}
	return lineBreaks.Replace(Plain(string(plainBytes(cell))))
}

var lineBreaks = strings.NewReplacer("\n", `\n`, "\t", `\t`)

// plainBytes returns a cell's bytes unchanged, for raw and, escaped, for tsv.
func plainBytes(cell any) []byte {
	switch c := cell.(type) {
	case nil:
		return nil
	case []byte:
		return c
	case string:
		return []byte(c)
	case []string:
		return []byte(strings.Join(c, ","))
	case []uint64:
		var b []byte
		for i, n := range c {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, n, 10)
		}
		return b
	case Size:
		return strconv.AppendUint(nil, uint64(c), 10)
	}
	return fmt.Append(nil, cell)
}
