package archive

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// tester is a test, or a check of rapid.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t tester, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("%v; want %v", err, class)
	}
}

// newIdentity makes an identity.
func newIdentity(t tester) *age.X25519Identity {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	must(t, err)
	return identity
}

var at = hlc.Timestamp{Wall: 1_763_632_000_123_456_789, Logical: 7}

// testHeader is a header that any key, and any timestamp up to at, can be below.
func testHeader() Header {
	return Header{Kind: "full", Backup: "2026-01-02", Sequence: 3, KeyspaceID: 4, Keyspace: "orders",
		At: at}
}

// seal makes a piece of records.
func seal(t tester, h Header, o Options, records []Record) []byte {
	t.Helper()
	w, err := NewWriter(h, o)
	must(t, err)
	for _, r := range records {
		must(t, w.Add(r))
	}
	if w.Count() != len(records) {
		t.Fatalf("%d records were added, and it says %d", len(records), w.Count())
	}
	data, sum, err := w.Finish()
	must(t, err)
	must(t, sum.Check(data))
	return data
}

// readAll returns the records of a piece, up to an error.
func readAll(data []byte, identities Identities) (Header, []Record, error) {
	r, err := Open(data, identities)
	if err != nil {
		return Header{}, nil, err
	}
	return readRest(r)
}

// readRest reads what is left of a piece.
func readRest(r *Reader) (Header, []Record, error) {
	var all []Record
	for {
		record, err := r.Next()
		if err != nil {
			if again, twice := r.Next(); again.Key != nil || twice != err {
				return r.Header(), all, fmt.Errorf("after %w comes %w", err, twice)
			}
			if err == io.EOF {
				if r.Count() != len(all) {
					err = fmt.Errorf("%d records, and the count is %d", len(all), r.Count())
				} else {
					err = nil
				}
			}
			return r.Header(), all, err
		}
		record.Key = slices.Clone(record.Key)
		all = append(all, record)
	}
}

func sameRecord(a, b Record) bool {
	return bytes.Equal(a.Key, b.Key) && a.Timestamp == b.Timestamp && a.Kind == b.Kind &&
		a.Expiry == b.Expiry && bytes.Equal(a.Value, b.Value)
}

// drawRecords draws records in order, with keys of a span.
func drawRecords(t *rapid.T, h Header) []Record {
	key := rapid.Custom(func(t *rapid.T) string {
		prefix := rapid.SampledFrom([]string{"", "a", "order/", "order/00", strings.Repeat("k", 300)})
		return prefix.Draw(t, "prefix") + string(rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "rest"))
	})
	wall := rapid.OneOf(rapid.Int64Range(h.After.Wall, h.At.Wall),
		rapid.Int64Range(h.At.Wall-3, h.At.Wall))
	all := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Record {
		r := Record{Key: []byte(key.Draw(t, "key"))}
		r.Timestamp = hlc.Timestamp{Wall: wall.Draw(t, "wall"),
			Logical: rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32()).Draw(t, "logical")}
		if rapid.Bool().Draw(t, "tombstone") {
			r.Kind = Tombstone
			return r
		}
		r.Expiry = rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "expiry")
		r.Value = rapid.OneOf(rapid.SliceOfN(rapid.Byte(), 0, 20),
			rapid.Just(bytes.Repeat([]byte("value"), 20_000))).Draw(t, "value")
		return r
	}), 0, 40).Draw(t, "records")
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(bytes.Compare(a.Key, b.Key), b.Timestamp.Compare(a.Timestamp))
	})
	all = slices.CompactFunc(all, func(a, b Record) bool {
		return bytes.Equal(a.Key, b.Key) && a.Timestamp == b.Timestamp
	})
	return slices.DeleteFunc(all, func(r Record) bool {
		return !h.contains(r.Key) || r.Timestamp.LessEq(h.After) || h.At.Less(r.Timestamp)
	})
}

// What was written is read, with every level, encrypted or not.
func TestRecords(t *testing.T) {
	identity, other := newIdentity(t), newIdentity(t)
	rapid.Check(t, func(t *rapid.T) {
		h := testHeader()
		h.Start = []byte(rapid.SampledFrom([]string{"", "a", "order/"}).Draw(t, "start"))
		h.End = []byte(rapid.SampledFrom([]string{"", "order/01", "z"}).Draw(t, "end"))
		if rapid.Bool().Draw(t, "incremental") {
			h.After = hlc.Timestamp{Wall: h.At.Wall - 2, Logical: 5}
		}
		if rapid.Bool().Draw(t, "hash") {
			partition := rapid.Uint32().Draw(t, "partition")
			h.Partition = &partition
		}
		o := Options{Level: rapid.IntRange(0, 4).Draw(t, "level")}
		var identities Identities
		if rapid.Bool().Draw(t, "encrypted") {
			o.Recipients = Recipients{other.Recipient(), identity.Recipient()}
			identities = Identities{identity}
		}
		records := drawRecords(t, h)
		data := seal(t, h, o, records)
		found, got, err := readAll(data, identities)
		must(t, err)
		if fmt.Sprint(found.Kind, found.Backup, found.Sequence, found.KeyspaceID, found.Keyspace,
			found.Start, found.End, found.After, found.At) != fmt.Sprint(h.Kind, h.Backup, h.Sequence,
			h.KeyspaceID, h.Keyspace, h.Start, h.End, h.After, h.At) ||
			(found.Partition == nil) != (h.Partition == nil) ||
			h.Partition != nil && *found.Partition != *h.Partition {
			t.Fatalf("the header came back as %+v", found)
		}
		if !slices.EqualFunc(got, records, sameRecord) {
			t.Fatalf("%d records came back as %d: %v", len(records), len(got), got)
		}
		info, err := Inspect(data)
		must(t, err)
		if !info.Piece || !slices.Equal(info.Recipients, o.Recipients.Strings()) {
			t.Fatalf("it is %+v", info)
		}
	})
}

// small is a small piece that has everything a record can have.
func small(t tester, o Options) []byte {
	return seal(t, testHeader(), o, []Record{
		{Key: []byte{}, Timestamp: at, Value: []byte("of the empty key")},
		{Key: []byte("a"), Timestamp: at, Kind: Tombstone},
		{Key: []byte("a"), Timestamp: hlc.Timestamp{Wall: 5}, Value: []byte("old"), Expiry: at.Wall + 9},
		{Key: []byte("ab"), Timestamp: hlc.Timestamp{Wall: 5, Logical: 1}, Value: []byte{}},
	})
}

// A Reader that has read a piece, or has failed to, reads the next one in the same memory.
func TestReset(t *testing.T) {
	large := seal(t, testHeader(), Options{}, []Record{
		{Key: []byte("k"), Timestamp: at, Value: bytes.Repeat([]byte("much"), 1<<20)}})
	var r Reader
	for round, data := range [][]byte{small(t, Options{}), large, small(t, Options{}), nil,
		small(t, Options{})[1:], large, small(t, Options{})} {
		before := cap(r.space)
		_, want, wanted := readAll(data, nil)
		err := r.Reset(data, nil)
		if err == nil {
			_, got, err := readRest(&r)
			if must(t, err); !slices.EqualFunc(got, want, sameRecord) {
				t.Errorf("round %d: %d records, want %d", round, len(got), len(want))
			}
		} else if _, next := r.Next(); next != err || wanted == nil {
			t.Errorf("round %d: %v, then %v; want %v", round, err, next, wanted)
		}
		if cap(r.space) < before {
			t.Errorf("round %d: the memory is not used again", round)
		}
	}
}

// Every changed byte is noticed, and everything that is cut off or put in.
func TestChangesAreNoticed(t *testing.T) {
	identity := newIdentity(t)
	blob, _, err := Seal("manifest", []byte(`{"pieces": 3}`), Options{})
	must(t, err)
	for name, c := range map[string]struct {
		data       []byte
		identities Identities
	}{
		"plain": {small(t, Options{}), nil},
		"encrypted": {small(t, Options{Recipients: Recipients{identity.Recipient()}}),
			Identities{identity}},
		"blob": {blob, nil},
	} {
		read := func(data []byte) (err error) {
			if name == "blob" {
				_, err = Unseal(data, "manifest", nil)
			} else {
				_, _, err = readAll(data, c.identities)
			}
			return err
		}
		must(t, read(c.data))
		for i := range c.data {
			for _, flip := range []byte{1, 0x10, 0x80, 0xff} {
				changed := slices.Clone(c.data)
				changed[i] ^= flip
				if err := read(changed); !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s: byte %d xor %x: %v", name, i, flip, err)
				}
				if SumOf(c.data).Check(changed) == nil {
					t.Errorf("%s: byte %d: the sum is the same", name, i)
				}
			}
			wants(t, read(c.data[:i]), ErrCorrupt)
			wants(t, read(slices.Insert(slices.Clone(c.data), i, 0)), ErrCorrupt)
		}
		wants(t, read(append(slices.Clone(c.data), 0)), ErrCorrupt)
		wants(t, SumOf(c.data).Check(c.data[1:]), ErrCorrupt)
	}
	wants(t, func() error { _, err := Open(blob, nil); return err }(), ErrCorrupt)
	wants(t, func() error { _, err := Unseal(blob, "other", nil); return err }(), ErrCorrupt)
	wants(t, func() error { _, err := Unseal(small(t, Options{}), "manifest", nil); return err }(),
		ErrCorrupt)
}

// withChecksum makes the outer checksum right.
func withChecksum(data []byte) []byte {
	end := len(data) - checksum
	return binary.LittleEndian.AppendUint32(data[:end:end], crc32.Checksum(data[:end], castagnoli))
}

func TestNewerVersions(t *testing.T) {
	for i, newer := range map[int]byte{4: version + 1, 5: formZstd | 4, 6: 3} {
		data := small(t, Options{})
		data[i] = newer
		_, err := Open(withChecksum(data), nil)
		if wants(t, err, ErrNewer); errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	}
	data := small(t, Options{})
	data[5] = 0 // not compressed at all
	_, err := Open(withChecksum(data), nil)
	wants(t, err, ErrNewer)
}

// wrap puts a payload into the layers, with right checksums.
func wrap(t tester, content byte, payload []byte) []byte {
	t.Helper()
	s, err := newSealer(content, Options{})
	must(t, err)
	payload = binary.LittleEndian.AppendUint32(slices.Clip(payload),
		crc32.Checksum(payload, castagnoli))
	_, err = s.Write(payload)
	must(t, err)
	data, _, err := s.finish()
	must(t, err)
	return data
}

// piece is the payload of a piece, without its checksum.
func piece(t tester, h Header, records []byte, count uint64) []byte {
	t.Helper()
	text, err := h.MarshalJSON()
	must(t, err)
	b := binary.AppendUvarint(nil, uint64(len(text)))
	b = append(append(b, text...), records...)
	return binary.LittleEndian.AppendUint64(b, count)
}

// A writer that is wrong is noticed, too: its checksums are right.
func TestWrongPieces(t *testing.T) {
	h := testHeader()
	h.Start, h.End, h.After = []byte("b"), []byte("y"), hlc.Timestamp{Wall: at.Wall - 100}
	encode := func(records ...Record) (b []byte) {
		s := sequence{header: h}
		for _, r := range records {
			b = s.append(b, &r)
			s.follow(&r)
		}
		return b
	}
	good := Record{Key: []byte("k"), Timestamp: hlc.Timestamp{Wall: at.Wall - 10}, Value: []byte("v")}
	with := func(change func(r *Record)) Record {
		r := good
		change(&r)
		return r
	}
	if _, got, err := readAll(wrap(t, contentPiece, piece(t, h, encode(good), 1)), nil); err != nil ||
		len(got) != 1 {
		t.Fatal(got, err)
	}
	for name, c := range map[string]struct {
		records []byte
		count   uint64
	}{
		"fewer":      {encode(good), 2},
		"more":       {encode(good, with(func(r *Record) { r.Key = []byte("l") })), 1},
		"absurd":     {encode(good), 1 << 40},
		"twice":      {encode(good, good), 2},
		"disordered": {encode(good, with(func(r *Record) { r.Key = []byte("j") })), 2},
		"older first": {encode(good,
			with(func(r *Record) { r.Timestamp.Wall = at.Wall - 1 })), 2},
		"before the span":  {encode(with(func(r *Record) { r.Key = []byte("a") })), 1},
		"behind the span":  {encode(with(func(r *Record) { r.Key = []byte("y") })), 1},
		"too old":          {encode(with(func(r *Record) { r.Timestamp = h.After })), 1},
		"too new":          {encode(with(func(r *Record) { r.Timestamp = at.Next() })), 1},
		"negative":         {encode(with(func(r *Record) { r.Timestamp.Wall = -1 })), 1},
		"negative expiry":  {encode(with(func(r *Record) { r.Expiry = -1 })), 1},
		"unknown flag":     {append([]byte{0x10}, encode(good)[1:]...), 1},
		"same as none":     {[]byte{flagSameKey, 0, 0}, 1},
		"shared with none": {[]byte{0, 1, 0, 0, 0}, 1},
		"long key":         {[]byte{0, 0, 0xff, 0xff, 0xff, 0x7f, 'k'}, 1},
		"long value":       {[]byte{0, 0, 1, 'k', 0, 0xff, 0xff, 0xff, 0x7f}, 1},
		"cut off":          {encode(good)[:4], 1},
		"endless number":   {bytes.Repeat([]byte{0xff}, 40), 1},
	} {
		_, got, err := readAll(wrap(t, contentPiece, piece(t, h, c.records, c.count)), nil)
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	noCount := piece(t, h, nil, 0)
	noCount = noCount[:len(noCount)-5]
	for name, payload := range map[string][]byte{
		"nothing": {}, "long header": {0xff, 0xff, 0xff, 0x7f},
		"no JSON":   append([]byte{4}, "json12345678"...),
		"no header": piece(t, Header{}, nil, 0), "no count": noCount,
	} {
		if _, err := Open(wrap(t, contentPiece, payload), nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMistakesOfWriters(t *testing.T) {
	for name, change := range map[string]func(h *Header){
		"no kind":      func(h *Header) { h.Kind = "" },
		"strange kind": func(h *Header) { h.Kind = "Full backup" },
		"empty span":   func(h *Header) { h.Start, h.End = []byte("b"), []byte("b") },
		"no time":      func(h *Header) { h.At = hlc.Timestamp{} },
		"no interval":  func(h *Header) { h.After = h.At.Next() },
		"long bound":   func(h *Header) { h.Start = make([]byte, MaxKey+1) },
		"long name":    func(h *Header) { h.Keyspace = strings.Repeat("x", maxHeader) },
	} {
		h := testHeader()
		change(&h)
		if _, err := NewWriter(h, Options{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := NewWriter(testHeader(), Options{Level: 5})
	wants(t, err, ErrInvalid)
	w, err := NewWriter(testHeader(), Options{})
	must(t, err)
	good := Record{Key: []byte("k"), Timestamp: at, Value: []byte("v")}
	must(t, w.Add(good))
	wants(t, w.Add(good), ErrOrder)
	good.Key = []byte("l")
	for name, change := range map[string]func(r *Record){
		"long key":    func(r *Record) { r.Key = bytes.Repeat([]byte("z"), MaxKey+1) },
		"long value":  func(r *Record) { r.Value = make([]byte, keys.MaxValueSize+1) },
		"late":        func(r *Record) { r.Timestamp = at.Next() },
		"tombstone":   func(r *Record) { r.Kind = Tombstone },
		"what is it?": func(r *Record) { r.Kind = Tombstone + 1 },
		"expiry":      func(r *Record) { r.Expiry = -1 },
	} {
		r := good
		change(&r)
		if err := w.Add(r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, w.Add(good))
	data, _, err := w.Finish()
	must(t, err)
	if _, got, err := readAll(data, nil); err != nil || len(got) != 2 {
		t.Errorf("%v: %v", got, err)
	}
	_, _, err = w.Finish()
	wants(t, err, ErrInvalid)
	wants(t, w.Add(good), ErrInvalid)
	w.Close()
}

// The largest records fit, and a piece says when it is full.
func TestFullPiece(t *testing.T) {
	key := func(i int) []byte { return append(make([]byte, MaxKey-1), byte(i)) }
	w, err := NewWriter(testHeader(), Options{})
	must(t, err)
	added := 0
	for ; ; added++ {
		err := w.Add(Record{Key: key(added), Timestamp: at, Value: make([]byte, keys.MaxValueSize)})
		if errors.Is(err, ErrFull) {
			break
		}
		must(t, err)
	}
	if added != MaxPayload/keys.MaxValueSize-1 || w.Count() != added {
		t.Errorf("%d records were added", added)
	}
	data, _, err := w.Finish()
	must(t, err)
	if _, got, err := readAll(data, nil); err != nil || len(got) != added {
		t.Errorf("%d records: %v", len(got), err)
	}
	_, _, err = Seal("blob", make([]byte, MaxPayload), Options{})
	wants(t, err, ErrFull)
}

// Bombs, which are small and decompress to much, do not take much memory.
func TestBombs(t *testing.T) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	must(t, err)
	// A frame that does not say its length, of 320 MiB.
	var unknown bytes.Buffer
	encoder.Reset(&unknown)
	zeros := make([]byte, MaxPayload/4)
	for range 5 {
		_, err := encoder.Write(zeros)
		must(t, err)
	}
	must(t, encoder.Close())
	// A frame header with a window of 2^41, and one with a content of 2^60.
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x01, 0x00, 0x00}
	content := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x01, 0x00, 0x00}
	for name, body := range map[string][]byte{
		"unknown": unknown.Bytes(), "window": window, "content": content,
	} {
		data := append([]byte(magic), version, formZstd, contentPiece)
		data = withChecksum(append(append(data, body...), 0, 0, 0, 0))
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := Open(data, nil)
		runtime.ReadMemStats(&after)
		wants(t, err, ErrCorrupt)
		if took := after.TotalAlloc - before.TotalAlloc; took > 3*MaxPayload {
			t.Errorf("%s: %d MiB were allocated for %d bytes", name, took>>20, len(data))
		}
	}
}

func TestBlobs(t *testing.T) {
	identity := newIdentity(t)
	for _, o := range []Options{{}, {Recipients: Recipients{identity.Recipient()}, Level: 3}} {
		for _, content := range [][]byte{{}, []byte("content"), bytes.Repeat([]byte("much"), 1<<20)} {
			data, sum, err := Seal("coord-7", content, o)
			must(t, err)
			must(t, sum.Check(data))
			got, err := Unseal(data, "coord-7", Identities{identity})
			if must(t, err); !bytes.Equal(got, content) {
				t.Errorf("%d bytes came back as %d", len(content), len(got))
			}
			if len(content) > 100 && len(data) > len(content)/10 {
				t.Errorf("%d bytes became %d", len(content), len(data))
			}
			if info, err := Inspect(data); err != nil || info.Piece {
				t.Errorf("%+v: %v", info, err)
			}
		}
	}
	type manifest struct {
		Pieces []Sum  `json:"pieces"`
		Header Header `json:"header"`
	}
	data, _, err := SealJSON("manifest", manifest{[]Sum{SumOf(nil)}, testHeader()}, Options{})
	must(t, err)
	var got manifest
	must(t, UnsealJSON(data, "manifest", nil, &got))
	if len(got.Pieces) != 1 || got.Pieces[0] != SumOf(nil) || got.Header.At != at {
		t.Errorf("%+v", got)
	}
	var number int
	wants(t, UnsealJSON(data, "manifest", nil, &number), ErrCorrupt)
	_, _, err = SealJSON("manifest", func() {}, Options{})
	wants(t, err, ErrInvalid)
	_, _, err = Seal("Man ifest", nil, Options{})
	wants(t, err, ErrInvalid)
}

func TestIdentities(t *testing.T) {
	one, two, three := newIdentity(t), newIdentity(t), newIdentity(t)
	o := Options{Recipients: Recipients{one.Recipient(), two.Recipient()}}
	data := small(t, o)
	for _, identities := range []Identities{{one}, {two}, {three, two}} {
		_, _, err := readAll(data, identities)
		must(t, err)
	}
	for _, identities := range []Identities{nil, {three}} {
		_, _, err := readAll(data, identities)
		wants(t, err, ErrNoIdentity)
		for _, recipient := range append(o.Recipients, identities.Recipients()...).Strings() {
			if !strings.Contains(err.Error(), recipient) {
				t.Errorf("%v does not name %s", err, recipient)
			}
		}
	}
	// What is not encrypted is read with identities, too.
	_, _, err := readAll(small(t, Options{}), Identities{one})
	must(t, err)

	file := "# created: today\n# public key: " + one.Recipient().String() + "\n" + one.String() +
		"\r\n\n  " + two.String()
	identities, err := ParseIdentities(file)
	must(t, err)
	recipients, err := ParseRecipients(append(identities.Recipients().Strings(),
		" "+one.Recipient().String()+"\n")...)
	must(t, err)
	if !slices.Equal(recipients.Strings(), o.Recipients.Strings()) {
		t.Errorf("%q", recipients.Strings())
	}
	for _, text := range []string{"", "# nothing\n", one.Recipient().String(), one.String()[:20],
		"AGE-SECRET-KEY-PQ-1ABC", "-----BEGIN AGE ENCRYPTED FILE-----\n", one.String() + "x"} {
		_, err := ParseIdentities(text)
		if wants(t, err, ErrInvalid); strings.Contains(err.Error(), one.String()[:20]) {
			t.Errorf("%v has a secret", err)
		}
	}
	for _, text := range []string{"", "ssh-ed25519 AAAA", "age1pq1abc", one.String(), "age1",
		one.Recipient().String()[:30]} {
		_, err := ParseRecipients(text)
		if wants(t, err, ErrInvalid); strings.Contains(err.Error(), one.String()) {
			t.Errorf("%v has a secret", err)
		}
	}
	many := make(Recipients, maxRecipients+1)
	for i := range many {
		many[i] = one.Recipient()
	}
	_, _, err = Seal("blob", nil, Options{Recipients: many})
	wants(t, err, ErrInvalid)
}
