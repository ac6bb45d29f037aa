package records

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// AppendEscaped appends field in the form of TSV.
func AppendEscaped(dst, field []byte) []byte {
	for i := 0; i < len(field); {
		c := field[i]
		if c >= ' ' && c < 0x7f && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		switch c {
		case '\\':
			dst = append(dst, '\\', '\\')
			i++
			continue
		case '\t':
			dst = append(dst, '\\', 't')
			i++
			continue
		case '\n':
			dst = append(dst, '\\', 'n')
			i++
			continue
		case '\r':
			dst = append(dst, '\\', 'r')
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			// unicode.IsPrint excludes characters that would confuse a terminal or a reader: control
			// characters, unusual spaces, surrogates.
			if r, size := utf8.DecodeRune(field[i:]); size > 1 && unicode.IsPrint(r) {
				dst = append(dst, field[i:i+size]...)
				i += size
				continue
			}
		}
		dst = append(dst, '\\', 'x', hexDigits[c>>4], hexDigits[c&15])
		i++
	}
	return dst
}

// Escape returns the result of AppendEscaped as a string: any bytes in printable form, on one line.
func Escape(field []byte) string { return string(AppendEscaped(nil, field)) }

var (
	errTrailingBackslash = errors.New(`a backslash at the end; write \\ for a backslash`)
	errShortHex          = errors.New(`\x needs two hexadecimal digits after it`)
)

// Unescape appends the bytes that an escaped field represents. It accepts every escape that
// AppendEscaped writes, and no other.
func Unescape(dst, escaped []byte) ([]byte, error) {
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		i++
		if i == len(escaped) {
			return dst, errTrailingBackslash
		}
		switch escaped[i] {
		case '\\':
			dst = append(dst, '\\')
		case 't':
			dst = append(dst, '\t')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 'x':
			if i+2 >= len(escaped) {
				return dst, errShortHex
			}
			high, low := hexValue(escaped[i+1]), hexValue(escaped[i+2])
			if high < 0 || low < 0 {
				return dst, errShortHex
			}
			dst = append(dst, byte(high<<4|low))
			i += 2
		default:
			return dst, fmt.Errorf(`unknown escape \%s; the escapes are \t \n \r \\ \xNN`,
				Escape(escaped[i:i+1]))
		}
	}
	return dst, nil
}

func hexValue(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
