package records

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonRecord is one line of JSONL. Pointers distinguish an empty field from a missing one.
type jsonRecord struct {
	Key         *string `json:"key,omitempty"`
	KeyBase64   *string `json:"key_base64,omitempty"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 *string `json:"value_base64,omitempty"`
	Expires     *string `json:"expires,omitempty"`
}

func (r *Reader) parseJSON(line []byte) error {
	if !utf8.Valid(line) {
		return errors.New("the line is not valid UTF-8; put binary data into key_base64 or " +
			"value_base64")
	}
	if err := checkSurrogates(line); err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	var record jsonRecord
	if err := decoder.Decode(&record); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			return errors.New("the JSON object is cut off")
		}
		return fmt.Errorf("not a JSON record: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	var err error
	if r.key, err = jsonField(r.key, "key", record.Key, record.KeyBase64); err != nil {
		return err
	}
	if r.value, err = jsonField(r.value, "value", record.Value, record.ValueBase64); err != nil {
		return err
	}
	if record.Expires != nil {
		return r.record.parseExpiry(*record.Expires)
	}
	return nil
}

func jsonField(dst []byte, name string, text, encoded *string) ([]byte, error) {
	switch {
	case text != nil && encoded != nil:
		return dst, fmt.Errorf("both %q and %q are given; use one", name, name+"_base64")
	case text != nil:
		return append(dst, *text...), nil
	case encoded != nil:
		// The strict decoder refuses nonzero unused bits at the end, so that two different texts do not
		// represent the same field.
		dst, err := base64.StdEncoding.Strict().AppendDecode(dst, []byte(*encoded))
		if err != nil {
			return dst, fmt.Errorf("%q: %w", name+"_base64", err)
		}
		return dst, nil
	}
	return dst, fmt.Errorf("neither %q nor %q is given", name, name+"_base64")
}

// checkSurrogates refuses a \u escape of half a surrogate pair, which the JSON decoder would
// replace by U+FFFD without an error. It ignores everything else, well-formed or not.
func checkSurrogates(line []byte) error {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		i++
		unit, ok := unitAt(line, i)
		if !ok {
			continue // another escape: its second byte is skipped
		}
		i += 4
		switch {
		case unit >= 0xdc00 && unit <= 0xdfff:
			return fmt.Errorf(
				`\u%04x is half of a character; put binary data into key_base64 or value_base64`, unit)
		case unit >= 0xd800 && unit <= 0xdbff:
			low, ok := unitAt(line, i+2)
			if !ok || line[i+1] != '\\' || low < 0xdc00 || low > 0xdfff {
				return fmt.Errorf(
					`\u%04x is half of a character; put binary data into key_base64 or value_base64`, unit)
			}
			i += 6
		}
	}
	return nil
}

// unitAt reads "uXXXX" at i.
func unitAt(line []byte, i int) (unit int, ok bool) {
	if i < 1 || i+5 > len(line) || line[i] != 'u' {
		return 0, false
	}
	for _, c := range line[i+1 : i+5] {
		digit := hexValue(c)
		if digit < 0 {
			return 0, false
		}
		unit = unit<<4 | digit
	}
	return unit, true
}

// AppendJSONObject appends the record in the form of JSONL, without a newline. With keysOnly it
// leaves out the value. A Reader does not accept that form.
func AppendJSONObject(dst []byte, record Record, keysOnly bool) []byte {
	dst = append(dst, '{')
	dst = AppendJSONField(dst, "key", record.Key)
	if !keysOnly {
		dst = append(dst, ',')
		dst = AppendJSONField(dst, "value", record.Value)
	}
	if with, said := record.appendExpiry(append(dst, `,"expires":"`...)); said {
		dst = append(with, '"')
	}
	return append(dst, '}')
}

// AppendJSONField appends one member: "name":"text", or "name_base64":"..." if the field is not
// valid UTF-8.
func AppendJSONField(dst []byte, name string, field []byte) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	if !utf8.Valid(field) {
		dst = append(dst, `_base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, field)
		return append(dst, '"')
	}
	dst = append(dst, `":`...)
	return appendJSONString(dst, field)
}

// AppendJSONString appends text, which is valid UTF-8, as a JSON string. It escapes characters that
// could deceive a terminal or a reader: control characters of both kinds, changes of the writing
// direction, and invisible characters.
func AppendJSONString(dst []byte, text string) []byte { return appendJSONString(dst, text) }

func appendJSONString[T string | []byte](dst []byte, field T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(field); {
		c := field[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c == '\n':
				dst = append(dst, '\\', 'n')
			case c == '\t':
				dst = append(dst, '\\', 't')
			case c == '\r':
				dst = append(dst, '\\', 'r')
			case c < ' ' || c == 0x7f:
				dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			default:
				dst = append(dst, c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(string(field[i:min(i+utf8.UTFMax, len(field))]))
		switch high, low := utf16.EncodeRune(r); {
		case unicode.IsPrint(r):
			dst = append(dst, field[i:i+size]...)
		case high != utf8.RuneError:
			dst = appendUnit(appendUnit(dst, high), low)
		default:
			dst = appendUnit(dst, r)
		}
		i += size
	}
	return append(dst, '"')
}

// appendUnit appends a \u escape.
func appendUnit(dst []byte, unit rune) []byte {
	return append(dst, '\\', 'u', hexDigits[unit>>12&15], hexDigits[unit>>8&15],
		hexDigits[unit>>4&15], hexDigits[unit&15])
}
