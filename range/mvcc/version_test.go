package mvcc

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// FuzzDecodeHeader: decoding never panics, and what decodes encodes to the same bytes.
func FuzzDecodeHeader(f *testing.F) {
	for _, h := range []Header{
		{KindValue, RequestID{}, false, 0},
		{KindTombstone, RequestID{Client: 1, Sequence: 127}, true, 0},
		{KindValue, RequestID{Client: 1 << 63, Sequence: 1<<64 - 1}, false, 0},
		{KindValue, RequestID{Client: 7, Sequence: 128}, true, 0},
		{KindValue, RequestID{Client: 7, Sequence: 128}, true, 1},
		{KindValue, RequestID{Client: 7, Sequence: 1}, false, 1<<63 - 1},
	} {
		f.Add(h.Append(nil))
		if h.Kind == KindValue {
			f.Add(append(h.Append(nil), "some value"...))
		}
	}
	f.Add([]byte{})
	f.Add(make([]byte, 20))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x00})
	for _, fields := range [][]byte{{}, {0}, {1}, {2, 5}, {1, 0}, {1, 0x80, 0x00}, {1, 5},
		{1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}} {
		f.Add(append([]byte{0x21, 0, 0, 0, 0, 0, 0, 0, 0, 7}, fields...))
		f.Add(append([]byte{0x22, 0, 0, 0, 0, 0, 0, 0, 0, 7}, fields...))
	}
	f.Fuzz(func(t *testing.T, stored []byte) {
		h, value, err := DecodeHeader(stored)
		if err != nil {
			return
		}
		again := append(h.Append(nil), value...)
		if !bytes.Equal(again, stored) || h.size() != len(stored)-len(value) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", stored, h, again)
		}
	})
}

func ts(wall int64) hlc.Timestamp { return hlc.Timestamp{Wall: wall} }

func commit(t testing.TB, s *engine.State, fill func(b *engine.StateBatch) error) {
	t.Helper()
	b := s.NewBatch()
	defer b.Close()
	if err := fill(b); err != nil {
		t.Fatal(err)
	}
	if err := s.Commit(b); err != nil {
		t.Fatal(err)
	}
}

// TestCorruptVersions: whatever is not a version is an error that names the key, from every way of
// reading.
func TestCorruptVersions(t *testing.T) {
	victim := keys.AppendTimestamp(keys.DataKey([]byte("victim")), ts(5))
	good := Header{Kind: KindValue, Request: RequestID{Client: 1, Sequence: 2}}.Append(nil)
	for name, c := range map[string]struct{ stateKey, stored []byte }{
		"empty":     {victim, nil},
		"zeros":     {victim, make([]byte, 30)},
		"cut short": {victim, good[:len(good)-1]},
		"unknown flag": {victim,
			append([]byte{good[0] | 0x40}, good[1:]...)},
		"no fields": {victim,
			append([]byte{good[0] | 0x20}, good[1:]...)},
		"fields of a later version": {victim,
			append(append([]byte{good[0] | 0x20}, good[1:]...), 2, 5)},
		"no expiry": {victim,
			append(append([]byte{good[0] | 0x20}, good[1:]...), 1, 0)},
		"an expired kind": {victim, append([]byte{byte(KindExpired)}, good[1:]...)},
		"tombstone value": {victim,
			append(Header{Kind: KindTombstone}.Append(nil), 'x')},
	} {
		t.Run(name, func(t *testing.T) {
			s := openState(t)
			commit(t, s, func(b *engine.StateBatch) error {
				return errors.Join(put(b, []byte("before"), ts(1), RequestID{}, nil),
					b.Set(c.stateKey, c.stored, nil))
			})
			all := keys.Span{}
			key := []byte("victim")
			_, _, get := Get(s, key, ts(9))
			_, _, newest := Newest(s, key)
			_, _, uncertain := GetUncertain(s, key, ts(5), Limits{Versions: ts(9)})
			_, _, find := findRequest(s, key, ts(1), RequestID{Client: 1, Sequence: 2})
			_, forward := Scan(s, ScanOptions{Span: all, At: ts(9)}, nil)
			_, reverse := Scan(s, ScanOptions{Span: all, At: ts(9), Reverse: true}, nil)
			_, count := Count(s, ScanOptions{Span: all, At: ts(9)})
			_, garbage := Garbage(s, all, ts(9), GarbageLimits{})
			for i, err := range []error{get, newest, uncertain, find, forward, reverse, count, garbage} {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), `"victim"`) {
					t.Errorf("read %d: %v", i, err)
				}
			}
		})
	}
	t.Run("no timestamp", func(t *testing.T) {
		s := openState(t)
		commit(t, s, func(b *engine.StateBatch) error {
			return b.Set(keys.DataKey([]byte("victim")), good, nil)
		})
		if _, err := Scan(s, ScanOptions{At: ts(9)}, nil); !errors.Is(err, ErrCorrupt) {
			t.Error(err)
		}
	})
}

func TestWriteRefusesBadTimestamps(t *testing.T) {
	s := openState(t)
	b := s.NewBatch()
	defer b.Close()
	for _, bad := range []hlc.Timestamp{{}, {Wall: -1}} {
		if put(b, []byte("k"), bad, RequestID{}, nil) == nil ||
			remove(b, []byte("k"), bad, RequestID{}) == nil {
			t.Errorf("wrote at %s", bad)
		}
	}
	if Write(b, []byte("k"), ts(5), Header{Kind: KindTombstone, Expires: 7}, nil) == nil ||
		Write(b, []byte("k"), ts(5), Header{Kind: KindValue, Expires: -1}, nil) == nil {
		t.Error("wrote an expiry that does not decode")
	}
	if !b.Empty() {
		t.Error("a refused write left something in the batch")
	}
	if _, found, err := Get(s, []byte("k"), hlc.Timestamp{}); found || err != nil {
		t.Errorf("read at zero: %v, %v", found, err)
	}
	if err := Remove(b, [][]byte{keys.DataKey([]byte("k"))}); err == nil {
		t.Error("removed what is not a version")
	}
}

// TestEmitEndsScan: the callback's error comes back as it is.
func TestEmitEndsScan(t *testing.T) {
	s := openState(t)
	commit(t, s, func(b *engine.StateBatch) error {
		return errors.Join(put(b, []byte("a"), ts(1), RequestID{}, nil),
			put(b, []byte("b"), ts(1), RequestID{}, nil))
	})
	stop := errors.New("stop")
	for _, reverse := range []bool{false, true} {
		n := 0
		_, err := Scan(s, ScanOptions{At: ts(2), Reverse: reverse},
			func([]byte, Version) error { n++; return stop })
		if err != stop || n != 1 {
			t.Errorf("reverse %v: %v after %d", reverse, err, n)
		}
	}
}

// TestManyVersionsAreSteppedOver: a scan's work depends on the keys, not on the versions of each.
func TestManyVersionsAreSteppedOver(t *testing.T) {
	const rows, versions = 20, 500
	s := openState(t)
	commit(t, s, func(b *engine.StateBatch) error {
		for k := range rows {
			for v := range versions {
				if err := put(b, []byte{0, 0, 0, 7, byte(k)}, ts(int64(v+1)),
					RequestID{Client: 1, Sequence: uint64(v)}, []byte("v")); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, flushed := range []bool{false, true} {
		if flushed {
			if err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		for _, at := range []int64{1, versions / 2, versions, versions * 2} {
			for _, reverse := range []bool{false, true} {
				counting := &countingReader{Reader: s}
				steps := 0
				result, err := Scan(counting, ScanOptions{At: ts(at), Reverse: reverse},
					func(_ []byte, v Version) error {
						if want := min(at, versions); v.Timestamp != ts(want) {
							t.Errorf("got the version at %s, want %d", v.Timestamp, want)
						}
						steps = counting.steps()
						return nil
					})
				if err != nil || result.Rows != rows {
					t.Fatalf("at %d: %+v, %v", at, result, err)
				}
				if steps > rows*4*(maxSteps+4) {
					t.Errorf("at %d, reverse %v, flushed %v: %d steps for %d rows", at, reverse,
						flushed, steps, rows)
				}
			}
		}
	}
}
