package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/golang/snappy"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

type record struct {
	key, value string
	lifetime   keys.Lifetime
}

func (r record) written() Record {
	return Record{Key: []byte(r.key), Value: []byte(r.value), Lifetime: r.lifetime}
}

func readAll(data []byte) (all []record, err error) {
	r, err := Open(data)
	if err != nil {
		return nil, err
	}
	for {
		next, ok, err := r.Next()
		if !ok {
			if err == nil && len(all) != r.Records() {
				err = fmt.Errorf("%d records without an error, and Records says %d", len(all), r.Records())
			}
			return all, err
		}
		all = append(all, record{string(next.Key), string(next.Value), next.Lifetime})
	}
}

// What was written is read, whatever bytes it has.
func TestBlockKeepsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Writer
		for range 2 { // it is used again
			of := rapid.MapOfN(rapid.StringN(1, 20, 40), rapid.String(), 0, 40).Draw(t, "records")
			want := sorted(of)
			if rapid.Bool().Draw(t, "lifetimes") {
				for i := range want {
					want[i].lifetime = rapid.SampledFrom([]keys.Lifetime{keys.DefaultLifetime, keys.Forever,
						keys.Until(2), keys.Until(1 << 62)}).Draw(t, "lifetime")
				}
			}
			size := 0
			for _, r := range want {
				if err := w.Add(r.written()); err != nil {
					t.Fatal(err)
				}
				size += len(r.key) + len(r.value)
			}
			if w.Records() != len(want) || w.Size() != uint64(size) {
				t.Fatalf("%d records of %d bytes, and the writer says %d of %d", len(want), size,
					w.Records(), w.Size())
			}
			got, err := readAll(w.Finish())
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("wrote %+v, read %+v", want, got)
			}
		}
	})
}

func sorted(of map[string]string) (all []record) {
	for key, value := range of {
		all = append(all, record{key: key, value: value})
	}
	for i := range all {
		for j := i; j > 0 && all[j].key < all[j-1].key; j-- {
			all[j], all[j-1] = all[j-1], all[j]
		}
	}
	return all
}

// Keys that lie close together, and values that repeat, take little.
func TestBlockCompresses(t *testing.T) {
	var w Writer
	for i := range 1000 {
		if err := w.Add(Record{Key: fmt.Appendf(nil, "a/long/prefix/%08d", i),
			Value: bytes.Repeat([]byte("v"), 100)}); err != nil {
			t.Fatal(err)
		}
	}
	size := w.Size()
	if n := len(w.Finish()); uint64(n) > size/5 {
		t.Fatalf("%d bytes take %d", size, n)
	}
}

// A writer takes only what a reader would.
func TestWriterRefuses(t *testing.T) {
	var w Writer
	if err := w.Add(Record{Key: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "a", "", string(make([]byte, keys.MaxKeySize+1))} {
		if err := w.Add(Record{Key: []byte(key)}); err == nil {
			t.Errorf("key %.10q was taken behind b", key)
		}
	}
	if err := w.Add(Record{Key: []byte("c"), Value: make([]byte, keys.MaxValueSize+1)}); !errors.Is(err,
		keys.ErrValueTooLarge) {
		t.Errorf("a value that is too large: %v", err)
	}
	if err := w.Add(Record{Key: []byte("c"), Value: make([]byte, keys.MaxValueSize)}); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(Record{Key: []byte("d"), Value: make([]byte, keys.MaxValueSize)}); err == nil {
		t.Error("a body above MaxBody was taken")
	}
	if got, err := readAll(w.Finish()); err != nil || len(got) != 2 {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

// raw is a block of a body that Writer would not make.
func raw(records, size uint64, form byte, body []byte) []byte {
	out := []byte{versionPlain, form}
	out = binary.AppendUvarint(out, records)
	out = binary.AppendUvarint(out, size)
	return append(out, body...)
}

func one(shared, rest, value uint64, data string) []byte {
	b := binary.AppendUvarint(nil, shared)
	b = binary.AppendUvarint(b, rest)
	return append(binary.AppendUvarint(b, value), data...)
}

// hostile are blocks of clients that mean no good.
func hostile() map[string][]byte {
	plain := func(records int, body []byte) []byte {
		return raw(uint64(records), uint64(len(body)), formPlain, body)
	}
	lives := func(records int, body []byte, lifetimes ...byte) []byte {
		out := []byte{versionLifetimes, formPlain, byte(records), byte(len(body) + len(lifetimes)),
			byte(len(lifetimes))}
		return append(append(out, body...), lifetimes...)
	}
	a := one(0, 1, 0, "a")
	bomb := snappy.Encode(nil, make([]byte, MaxBody+1))
	return map[string][]byte{
		"nothing":               {},
		"another version":       {versionLifetimes + 1, formPlain, 0, 0},
		"another form":          {versionPlain, 2, 0, 0},
		"a header cut off":      {versionPlain, formPlain, 1},
		"too many records":      raw(MaxRecords+1, 0, formPlain, nil),
		"a bomb":                raw(1, MaxBody+1, formSnappy, bomb),
		"a bomb that says less": raw(1, 10, formSnappy, bomb),
		"a bomb of a header":    raw(1, MaxBody, formSnappy, binary.AppendUvarint(nil, MaxBody)),
		"a body cut off":        raw(1, 100, formPlain, one(0, 1, 1, "av")),
		"a key cut off":         plain(1, one(0, 9, 0, "a")),
		"a value cut off":       plain(1, one(0, 1, 1<<62, "a")),
		"lengths that overflow": plain(1, one(0, 1<<63, 1<<63, "a")),
		"more shared than was":  plain(1, one(5, 1, 0, "a")),
		"an empty key":          plain(1, one(0, 0, 0, "")),
		"a key twice":           plain(2, append(one(0, 1, 0, "a"), one(0, 1, 0, "a")...)),
		"a key twice, shared":   plain(2, append(one(0, 1, 0, "a"), one(1, 0, 0, "")...)),
		"out of order":          plain(2, append(one(0, 1, 0, "b"), one(0, 1, 0, "a")...)),
		"shorter than before":   plain(2, append(one(0, 2, 0, "ab"), one(1, 0, 0, "")...)),
		"fewer records":         plain(2, one(0, 1, 0, "a")),
		"more records":          plain(1, append(one(0, 1, 0, "a"), one(0, 1, 0, "b")...)),
		"no lifetime":           lives(1, a),
		"a time to live":        lives(1, a, 2),
		"two lifetimes":         lives(1, a, 0, 0),
		"a lifetime cut off":    lives(1, a, 0x80),
		"a long lifetime":       lives(1, a, 0x81, 0),
		"lifetimes cut off":     {versionLifetimes, formPlain, 1, 3, 4, 0, 1, 0},
		"a long number":         plain(1, []byte{0x80, 0, 1, 0, 'a'}),
		"a key that is too long": plain(1, one(0, keys.MaxKeySize+1, 0,
			string(make([]byte, keys.MaxKeySize+1)))),
	}
}

// Each is refused with a reason.
func TestHostileBlocks(t *testing.T) {
	for name, data := range hostile() {
		if got, err := readAll(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: read %d records, %v", name, len(got), err)
		}
	}
}

// Decoded is what a Reader takes for the body, and believes no header that Open refuses.
func TestDecoded(t *testing.T) {
	var w Writer
	for i := range 1000 {
		if err := w.Add(Record{Key: fmt.Appendf(nil, "%08d", i),
			Value: bytes.Repeat([]byte("v"), 100)}); err != nil {
			t.Fatal(err)
		}
	}
	packed := w.Finish()
	r, err := Open(packed)
	if err != nil {
		t.Fatal(err)
	}
	if n := Decoded(packed); n != r.Body() || n <= len(packed) {
		t.Errorf("a block of %d bytes with a body of %d: %d", len(packed), r.Body(), n)
	}
	for name, data := range hostile() {
		if n := Decoded(data); n < 0 || n > MaxBody {
			t.Errorf("%s: %d", name, n)
		}
	}
	if n := Decoded(raw(1, 3, formPlain, []byte("abc"))); n != 0 {
		t.Errorf("a body that is stored as it is: %d", n)
	}
}

// FuzzReader: no bytes make a reader panic, and what it returns is in order and can be written
// again.
func FuzzReader(f *testing.F) {
	var w Writer
	for i := range 10 {
		if err := w.Add(Record{Key: fmt.Appendf(nil, "key%d", i), Value: []byte("value"),
			Lifetime: keys.Lifetime(-i)}); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(w.Finish())
	for _, data := range hostile() {
		if len(data) < 1<<12 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n := Decoded(data); n < 0 || n > MaxBody {
			t.Fatal(n)
		}
		got, err := readAll(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		var again Writer
		for _, r := range got {
			if err := again.Add(r.written()); err != nil {
				t.Fatalf("a reader returned what a writer refuses: %v", err)
			}
		}
		if twice, err := readAll(again.Finish()); err != nil || fmt.Sprint(twice) != fmt.Sprint(got) {
			t.Fatalf("%v; read %+v, and then %+v", err, got, twice)
		}
	})
}
