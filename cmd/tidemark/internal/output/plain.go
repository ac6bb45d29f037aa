package output

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

// Terminal returns a writer for foreign text on its way to a terminal. It escapes everything on
// which a terminal would act, except line ends and tabs.
func Terminal(out io.Writer) io.Writer { return &terminal{out: out} }

type terminal struct {
	out io.Writer
	// part is the beginning of a character whose rest comes with the next Write.
	part []byte
}

// Write implements io.Writer.
func (t *terminal) Write(text []byte) (int, error) {
	whole := append(t.part, text...)
	t.part = nil
	var b bytes.Buffer
	for i := 0; i < len(whole); {
		r, size := utf8.DecodeRune(whole[i:])
		switch {
		case r == '\n' || r == '\t':
			b.WriteRune(r)
		case r == utf8.RuneError && size == 1 && !utf8.FullRune(whole[i:]):
			t.part = bytes.Clone(whole[i:])
			i = len(whole)
			continue
		case r == '\\': // a backslash does no harm, and is not doubled
			b.WriteByte('\\')
		case unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b.Write(whole[i : i+size])
		default:
			b.WriteString(records.Escape(whole[i : i+size]))
		}
		i += size
	}
	if _, err := t.out.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(text), nil
}

// PlainJSON makes foreign JSON safe for a terminal: in its strings it escapes everything on which a
// terminal would act, or which could deceive a reader.
func PlainJSON(text []byte) []byte {
	var b []byte
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRune(text[i:])
		switch {
		case r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || size > 1):
			b = append(b, text[i:i+size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		i += size
	}
	return b
}

// Plain makes a foreign text safe for a terminal: it keeps the number of lines, and escapes
// everything on which a terminal would act.
func Plain(text string) string {
	var b bytes.Buffer
	t := terminal{out: &b}
	_, _ = t.Write([]byte(text))
	b.WriteString(records.Escape(t.part))
	return b.String()
}
