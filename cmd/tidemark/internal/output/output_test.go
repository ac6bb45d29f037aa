package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
)

type version struct{}

func (version) String() string { return "1763632000.123456789.3" }

func sampleList(out io.Writer, format Format) *List {
	l := NewList(out, format, Column{Name: "id", Number: true}, Column{Name: "start"},
		Column{Name: "size", Number: true},
		Column{Name: "live keys", Number: true}, Column{Name: "nodes"}, Column{Name: "alive"},
		Column{Name: "version"})
	l.Row(uint64(100), []byte("a\x00\xff\t"), Size(3<<20+300<<10), 12, []string{"1", "2"},
		true, version{})
	l.Row(uint64(1001), []byte(nil), Size(999), 0, []string{"3"}, false, nil)
	l.Row(7, []byte{}, Size(0), 0, []string{}, false, "x\ny")
	return l
}

func TestList(t *testing.T) {
	want := map[Format]string{
		Table: `  ID  START           SIZE  LIVE KEYS  NODES  ALIVE  VERSION
 100  a\x00\xff\t  3.3 MiB         12  1,2    yes    1763632000.123456789.3
1001                 999 B          0  3      no     -
   7                   0 B          0         no     x\ny
`,
		TSV: "100\ta\\x00\\xff\\t\t3452928\t12\t1,2\ttrue\t1763632000.123456789.3\n" +
			"1001\t\t999\t0\t3\tfalse\t\n" +
			"7\t\t0\t0\t\tfalse\tx\\ny\n",
		JSON: `{"id":100,"start_base64":"YQD/CQ==","size":3452928,"live_keys":12,` +
			`"nodes":["1","2"],"alive":true,"version":"1763632000.123456789.3"}
{"id":1001,"start":null,"size":999,"live_keys":0,"nodes":["3"],"alive":false,"version":null}
{"id":7,"start":"","size":0,"live_keys":0,"nodes":[],"alive":false,"version":"x\ny"}
`,
		Raw: "100\ta\x00\xff\t\t3452928\t12\t1,2\ttrue\t1763632000.123456789.3\n" +
			"1001\t\t999\t0\t3\tfalse\t\n7\t\t0\t0\t\tfalse\tx\\ny\n",
	}
	for format, text := range want {
		var out bytes.Buffer
		if err := sampleList(&out, format).Flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != text {
			t.Errorf("%s:\n%s\nwant:\n%s", format, out.String(), text)
		}
	}
}

func TestRows(t *testing.T) {
	rows := [][2]string{{"a", "1"}, {"long key", ""}, {"b\x00", "x\ty\xff"}}
	want := map[Format]string{
		Table: "KEY       VALUE\na         1\nlong key\nb\\x00     x\\ty\\xff\n",
		TSV:   "a\t1\nlong key\t\nb\\x00\tx\\ty\\xff\n",
		JSON: "{\"key\":\"a\",\"value\":\"1\"}\n" +
			"{\"key\":\"long key\",\"value\":\"\"}\n" +
			"{\"key\":\"b\\u0000\",\"value_base64\":\"eAl5/w==\"}\n",
		Raw: "a\t1\nlong key\t\nb\x00\tx\ty\xff\n",
	}
	wantKeys := map[Format]string{
		Table: "KEY\na\nlong key\nb\\x00\n",
		TSV:   "a\nlong key\nb\\x00\n",
		JSON:  "{\"key\":\"a\"}\n{\"key\":\"long key\"}\n{\"key\":\"b\\u0000\"}\n",
		Raw:   "a\nlong key\nb\x00\n",
	}
	for _, keysOnly := range []bool{false, true} {
		for _, name := range Formats {
			format, err := ParseFormat(name)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			r := NewRows(&out, format, keysOnly)
			for _, row := range rows {
				if err := r.Write([]byte(row[0]), []byte(row[1]), time.Time{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Flush(); err != nil {
				t.Fatal(err)
			}
			text := want[format]
			if keysOnly {
				text = wantKeys[format]
			}
			if out.String() != text {
				t.Errorf("%s, keys only %v:\n%q\nwant:\n%q", format, keysOnly, out.String(), text)
			}
		}
	}
	if _, err := ParseFormat("yaml"); err == nil {
		t.Error("want an error for yaml")
	}
}

// A long stream comes out whole, in order, in memory that does not grow with it.
func TestRowsStream(t *testing.T) {
	const count = 10 * pageRows
	for _, format := range []Format{Table, TSV, JSON} {
		var out bytes.Buffer
		r := NewRows(&out, format, false)
		for i := range count {
			if err := r.Write(fmt.Appendf(nil, "key%d", i), []byte("v"), time.Time{}); err != nil {
				t.Fatal(err)
			}
			if len(r.page) >= pageRows {
				t.Fatal("the first page is held back too long")
			}
		}
		if err := r.Flush(); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if format == Table {
			lines = lines[1:]
		}
		if len(lines) != count || !strings.Contains(lines[count-1], fmt.Sprintf("key%d", count-1)) {
			t.Errorf("%s: %d lines, the last is %q", format, len(lines), lines[len(lines)-1])
		}
	}
}

// json and tsv rows are what a records.Reader takes.
func TestRowsCanBeLoaded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 30).Draw(t, "key")
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		for format, file := range map[Format]records.Format{TSV: records.TSV, JSON: records.JSONL} {
			var out bytes.Buffer
			r := NewRows(&out, format, false)
			if err := r.Write(key, value, time.Time{}); err != nil {
				t.Fatal(err)
			}
			if err := r.Flush(); err != nil {
				t.Fatal(err)
			}
			back, err := records.NewReader(&out, file, records.Limits{}).Next()
			if err != nil || !bytes.Equal(back.Key, key) || !bytes.Equal(back.Value, value) {
				t.Fatalf("%s: %v", format, err)
			}
		}
	})
}

// Every line of a list's json is an object.
func TestListJSONIsJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sampleList(&out, JSON).Flush(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if err := json.Unmarshal([]byte(line), &map[string]any{}); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for size, want := range map[Size]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB",
		1536: "1.5 KiB", 5 << 30: "5.0 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := size.String(); got != want {
			t.Errorf("%d: %s, want %s", uint64(size), got, want)
		}
	}
}
