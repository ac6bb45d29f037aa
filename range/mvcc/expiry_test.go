package mvcc

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A version without an expiry is stored as it was before there were any.
func TestHeaderWithoutExpiryIsShort(t *testing.T) {
	h := Header{Kind: KindValue, Request: RequestID{Client: 1, Sequence: 2}}
	want := []byte{1, 0, 0, 0, 0, 0, 0, 0, 1, 2}
	if got := h.Append(nil); !bytes.Equal(got, want) || h.size() != len(want) {
		t.Errorf("it is stored as %x, want %x", got, want)
	}
	h.Expires = 300
	want = []byte{0x21, 0, 0, 0, 0, 0, 0, 0, 1, 2, 1, 0xac, 0x02}
	if got := h.Append(nil); !bytes.Equal(got, want) || h.size() != len(want) {
		t.Errorf("with an expiry it is stored as %x, want %x", got, want)
	}
}

// An expired version hides the one below it, before and after garbage collection.
func TestExpiredVersionHidesOlder(t *testing.T) {
	s := openState(t)
	key := []byte("k")
	commit(t, s, func(b *engine.StateBatch) error {
		return errors.Join(put(b, key, ts(1), RequestID{}, []byte("old")),
			Write(b, key, ts(5), Header{Kind: KindValue, Expires: 10}, []byte("new")))
	})
	for _, c := range []struct {
		at   hlc.Timestamp
		want string
	}{{ts(4), "old"}, {ts(5), "new"}, {hlc.Timestamp{Wall: 9, Logical: math.MaxUint32}, "new"},
		{ts(10), ""}, {ts(11), ""}} {
		v, found, err := Get(s, key, c.at)
		if err != nil || !found || string(v.Value) != c.want ||
			(v.Kind == KindValue) != (c.want != "") {
			t.Errorf("at %s: %q %v, %v", c.at, v.Value, v.Kind, err)
		}
		result, err := Count(s, ScanOptions{At: c.at})
		if err != nil || (result.Rows == 1) != (c.want != "") {
			t.Errorf("at %s: %d rows, %v", c.at, result.Rows, err)
		}
	}
	// Below the expiry only what is hidden goes; from it on both, the older one first.
	for _, c := range []struct {
		threshold int64
		want      int
	}{{9, 1}, {10, 2}} {
		g, err := Garbage(s, keys.Span{}, ts(c.threshold), GarbageLimits{})
		if err != nil || len(g.Versions) != c.want || c.threshold == 9 && g.NextExpiry != 10 {
			t.Errorf("threshold %d: %d versions may go, the next expiry is %d, %v", c.threshold,
				len(g.Versions), g.NextExpiry, err)
		}
	}
	g, err := Garbage(s, keys.Span{}, ts(10), GarbageLimits{})
	if err != nil || len(g.Expired) != 1 || g.Expired[0] != 1 {
		t.Fatalf("%+v, %v", g, err)
	}
	commit(t, s, func(b *engine.StateBatch) error { return Remove(b, g.Versions[:1]) })
	if v, _, err := Get(s, key, ts(10)); err != nil || v.Kind == KindValue {
		t.Errorf("with only the older version gone: %v, %v", v, err)
	}
}
