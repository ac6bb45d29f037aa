package records

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"
)

var limits = Limits{Key: 8 << 10, Value: 8 << 20}

func readAll(t interface{ Fatalf(string, ...any) }, r *Reader) (all []Record) {
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v", err)
		}
		record.Key, record.Value = bytes.Clone(record.Key), bytes.Clone(record.Value)
		all = append(all, record)
	}
}

// Any bytes come back as they were, and writing them again gives the same file.
func TestRoundTrip(t *testing.T) {
	for _, format := range []Format{TSV, JSONL} {
		t.Run(string(format), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				field := rapid.OneOf(
					rapid.SliceOfN(rapid.Byte(), 0, 40),
					rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
					rapid.Map(rapid.SliceOf(
						rapid.SampledFrom([]string{"\\", "\t", "\n", "\r", "\"", "x", "u", "00",
							"\u2028", "\ufffd", "\x7f", "é", "\xff"})),
						func(s []string) []byte { return []byte(strings.Join(s, "")) }),
				)
				var want []Record
				var file bytes.Buffer
				w := NewWriter(&file, format)
				for range rapid.IntRange(0, 10).Draw(t, "records") {
					record := Record{Key: append([]byte{rapid.Byte().Draw(t, "first")},
						field.Draw(t, "key")...), Value: field.Draw(t, "value")}
					switch rapid.IntRange(0, 2).Draw(t, "expiry") {
					case 1:
						record.Forever = true
					case 2:
						record.Expires = time.Unix(0, rapid.Int64Range(2, math.MaxInt64).Draw(t, "expires"))
					}
					want = append(want, record)
					if err := w.Write(record); err != nil {
						t.Fatal(err)
					}
				}
				got := readAll(t, NewReader(iotest.OneByteReader(bytes.NewReader(file.Bytes())),
					format, limits))
				if len(got) != len(want) {
					t.Fatalf("%d records came back of %d", len(got), len(want))
				}
				var again bytes.Buffer
				w = NewWriter(&again, format)
				for i := range want {
					if !bytes.Equal(got[i].Key, want[i].Key) || !bytes.Equal(got[i].Value, want[i].Value) ||
						!got[i].Expires.Equal(want[i].Expires) || got[i].Forever != want[i].Forever {
						t.Fatalf("record %d: %q=%q came back as %q=%q", i, want[i].Key,
							want[i].Value, got[i].Key, got[i].Value)
					}
					if err := w.Write(got[i]); err != nil {
						t.Fatal(err)
					}
				}
				if !bytes.Equal(file.Bytes(), again.Bytes()) {
					t.Fatal("written again, the file differs")
				}
				if bytes.Count(file.Bytes(), []byte{'\n'}) != len(want) {
					t.Fatal("not one line for each record")
				}
			})
		})
	}
}

// The hand-written JSON is what encoding/json reads.
func TestJSONIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		object := append(AppendJSONField([]byte{'{'}, "key", []byte(text)), '}')
		var back map[string]string
		if err := json.Unmarshal(object, &back); err != nil || back["key"] != text {
			t.Fatalf("%s came back as %q, %v", object, back["key"], err)
		}
	})
}

func TestLinesOfAllLengths(t *testing.T) {
	for _, size := range []int{0, 1, 255 << 10, 256<<10 - 3, 256<<10 - 2, 256<<10 - 1, 256 << 10,
		600 << 10} {
		for _, end := range []string{"\n", ""} {
			file := "k\t" + strings.Repeat("v", size) + end + "k2\tv2"
			if end == "" {
				file = "k\t" + strings.Repeat("v", size)
			}
			got := readAll(t, NewReader(strings.NewReader(file), TSV, limits))
			if len(got[0].Value) != size ||
				(end != "" && (len(got) != 2 || string(got[1].Value) != "v2")) {
				t.Errorf("value of %d bytes, end %q: read %d records, the first value has %d", size,
					end, len(got), len(got[0].Value))
			}
		}
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	small := Limits{Key: 10, Value: 20}
	cases := []struct {
		format Format
		line   string
		want   string
	}{
		{TSV, "", "the line is empty"},
		{TSV, "key", "there is no tab between key and value"},
		{TSV, "a\tb\tc", `behind the second tab: the expiry "c" is not a time like ` +
			`2030-01-31T12:00:00Z, nor "never"; write \t for a tab inside a key or value`},
		{TSV, "a\tb\t2400-01-01T00:00:00Z", `behind the second tab: the expiry 2400-01-01T00:00:00Z is ` +
			`not between 1970 and 2262; write \t for a tab inside a key or value`},
		{TSV, "a\tb\tnever\t", `there are more than two tabs; write \t for a tab inside a key or value`},
		{TSV, "\tv", "the key is empty; a key has at least one byte"},
		{TSV, "k\tv\r",
			`the line ends with a carriage return; convert the file to Unix line ends, ` +
				`or write \r if the value ends so`},
		{TSV, `k` + "\t" + `a\`, `in the value: a backslash at the end; write \\ for a backslash`},
		{TSV, `k\q` + "\t", `in the key: unknown escape \q; the escapes are \t \n \r \\ \xNN`},
		{TSV, `k` + "\t" + `\x1`, `in the value: \x needs two hexadecimal digits after it`},
		{TSV, `k` + "\t" + `\xzz`, `in the value: \x needs two hexadecimal digits after it`},
		{TSV, "12345678901\tv", "the key has 11 bytes; the limit is 10"},
		{TSV, "k\t123456789012345678901", "the value has 21 bytes; the limit is 20"},
		{TSV, "k\t" + strings.Repeat("v", 300<<10), "the line is longer than the longest record"},
		{JSONL, `{"key":"a"}`, `neither "value" nor "value_base64" is given`},
		{JSONL, `{"value":"a"}`, `neither "key" nor "key_base64" is given`},
		{JSONL, `{"key":"a","key_base64":"YQ==","value":""}`,
			`both "key" and "key_base64" are given; use one`},
		{JSONL, `{"key":"a","value_base64":"YR=="}`,
			`"value_base64": illegal base64 data at input byte 2`},
		{JSONL, `{"key":"a","value":"b"`, "the JSON object is cut off"},
		{JSONL, `{"key":"a","value":"b"} x`, "there is more after the JSON object"},
		{JSONL, `{"key":"a","value":"b","ttl":1}`, `not a JSON record: json: unknown field "ttl"`},
		{JSONL, `{"key":1,"value":"b"}`,
			`not a JSON record: json: cannot unmarshal number into ` +
				`Go struct field jsonRecord.key of type string`},
		{JSONL, `{"key":"a","value":"\ud800"}`,
			`\ud800 is half of a character; put binary data into key_base64 or value_base64`},
		{JSONL, `{"key":"a","value":"\udc00"}`,
			`\udc00 is half of a character; put binary data into key_base64 or value_base64`},
		{JSONL, "{\"key\":\"a\",\"value\":\"\xff\"}",
			"the line is not valid UTF-8; put binary data into key_base64 or value_base64"},
	}
	good := map[Format]string{TSV: "k\tv\n", JSONL: `{"key":"k","value":"v"}` + "\n"}
	for _, c := range cases {
		reader := NewReader(strings.NewReader(good[c.format]+c.line+"\n"+good[c.format]), c.format,
			small)
		if _, err := reader.Next(); err != nil {
			t.Fatal(err)
		}
		_, err := reader.Next()
		var lineError *LineError
		if !errors.As(err, &lineError) || lineError.Line != 2 || lineError.Err.Error() != c.want {
			t.Errorf("%.60q:\n got %v\nwant line 2: %s", c.line, err, c.want)
		}
	}
	for _, ok := range []string{`{"key":"a","value":"\ud83d\ude00"}`,
		`{"key":"a","value":"\\ud800"}`, `{"key":"a","value":"\ufffd"}`} {
		if _, err := NewReader(strings.NewReader(ok), JSONL, limits).Next(); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	broken := NewReader(io.MultiReader(strings.NewReader("k\tv\nk2\t"),
		iotest.ErrReader(errors.New("pulled out"))), TSV, limits)
	if _, err := broken.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := broken.Next(); err == nil || err.Error() != "line 2: reading: pulled out" {
		t.Errorf("got %v", err)
	}
}

func TestFormats(t *testing.T) {
	for name, want := range map[string]Format{"a.tsv": TSV, "a.JSONL": JSONL, "a.ndjson": JSONL,
		"a": TSV, "-": TSV} {
		if got := FormatOfFile(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if f, err := ParseFormat("JSONL"); err != nil || f != JSONL {
		t.Errorf("%v %v", f, err)
	}
	if _, err := ParseFormat("csv"); err == nil {
		t.Error("want an error for csv")
	}
}

// A Reader never panics, and what it takes can be written and read again.
func FuzzReader(f *testing.F) {
	f.Add([]byte("k\tv\n\\x00\t\\\\\n"), true)
	f.Add([]byte(`{"key":"a","value_base64":"YQ=="}`), false)
	f.Fuzz(func(t *testing.T, file []byte, tsv bool) {
		format := JSONL
		if tsv {
			format = TSV
		}
		reader := NewReader(bytes.NewReader(file), format, Limits{Key: 100, Value: 1000})
		for {
			record, err := reader.Next()
			if err != nil {
				return
			}
			var again bytes.Buffer
			if err := NewWriter(&again, format).Write(record); err != nil {
				t.Fatal(err)
			}
			back, err := NewReader(&again, format, Limits{}).Next()
			if err != nil || !bytes.Equal(back.Key, record.Key) ||
				!bytes.Equal(back.Value, record.Value) {
				t.Fatalf("%q=%q came back as %q=%q, %v", record.Key, record.Value, back.Key, back.Value,
					err)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	for _, format := range []Format{TSV, JSONL} {
		b.Run(string(format), func(b *testing.B) {
			var file bytes.Buffer
			w := NewWriter(&file, format)
			for i := range 1000 {
				if err := w.Write(
					Record{Key: fmt.Appendf(nil,
						"pkg net/http, method (*Client) Do%d(*Request) (*Response, error)", i),
						Value: []byte("go1.txt")}); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(file.Len()))
			for b.Loop() {
				readAll(b, NewReader(bytes.NewReader(file.Bytes()), format, limits))
			}
		})
	}
}
