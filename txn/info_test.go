package txn

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func TestParseInfo(t *testing.T) {
	want := sampleInfo()
	if got, err := ParseInfo(want.Proto()); err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("%+v, %v; want %+v", got, err, want)
	}
	// The message's memory is not kept.
	m := want.Proto()
	m.Anchor = []byte("anchor")
	got, err := ParseInfo(m)
	if err != nil {
		t.Fatal(err)
	}
	m.Id[0], m.Anchor[0] = 0, 0
	if got.ID != want.ID || string(got.Anchor) != "anchor" {
		t.Fatalf("changed with the message: %+v", got)
	}
	for _, c := range []struct {
		change func(*kvpb.Transaction)
		want   string
	}{
		{func(m *kvpb.Transaction) { m.Id = nil }, "has 16 bytes, this one has 0"},
		{func(m *kvpb.Transaction) { m.Id = make([]byte, 17) }, "this one has 17"},
		{func(m *kvpb.Transaction) { m.Id = make([]byte, 16) }, "zero bytes"},
		{func(m *kvpb.Transaction) { m.Begun = nil }, "first attempt began"},
		{func(m *kvpb.Transaction) { m.Started = &kvpb.Timestamp{} }, "this attempt began"},
		{func(m *kvpb.Transaction) {
			m.Begun = &kvpb.Timestamp{Wall: math.MaxUint64}
		}, "before the first one"},
		{func(m *kvpb.Transaction) {
			m.Started = &kvpb.Timestamp{Wall: math.MaxUint64}
		}, "no clock shows"},
		{func(m *kvpb.Transaction) { m.Anchor = nil }, "the key is empty"},
		{func(m *kvpb.Transaction) {
			m.Anchor = make([]byte, keys.MaxKeySize+1)
		}, "the key is too large"},
	} {
		m := sampleInfo().Proto()
		c.change(m)
		if got, err := ParseInfo(m); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %+v, %v; want something about %q", m, got, err, c.want)
		}
	}
	if _, err := ParseInfo(nil); err == nil {
		t.Error("no transaction was accepted")
	}
	if id, err := ParseOptionalID(nil); err != nil || !id.IsZero() || id.Bytes() != nil {
		t.Errorf("no id: %v, %v", id, err)
	}
	if _, err := ParseOptionalID([]byte{1}); err == nil {
		t.Error("an id of one byte was accepted")
	}
}

// Older is a strict total order of transactions, with everything else after them.
func TestOlder(t *testing.T) {
	type transaction struct {
		begun hlc.Timestamp
		id    ID
	}
	oldestFirst := []transaction{{ts(5), testID(9)}, {hlc.Timestamp{Wall: 5, Logical: 1}, testID(1)},
		{ts(6), testID(2)}, {ts(6), testID(3)}, {ts(1), ID{}}}
	for i, a := range oldestFirst {
		for j, b := range oldestFirst {
			if got := Older(a.begun, a.id, b.begun, b.id); got != (i < j) {
				t.Errorf("%v older than %v: %t", a, b, got)
			}
		}
	}
	if Older(ts(1), ID{}, ts(2), ID{}) {
		t.Error("no transaction is older than none")
	}
}

func TestAnchored(t *testing.T) {
	key, id := []byte("k\x00\xff\x01"), ID{0: 1, 7: 0, 15: 0}
	for _, c := range []struct {
		stateKey []byte
		want     Anchored
		id       ID
	}{
		{LockKey(key), AnchoredLock, ID{}},
		{RecordKey(key, id), AnchoredRecord, id},
		{RecordKey(key, ID{}), AnchoredOther, ID{}},
		{keys.AnchorKey(key, recordPrefix+"short"), AnchoredOther, ID{}},
		{keys.AnchorKey(key, lockSuffix+"x"), AnchoredOther, ID{}},
		{keys.AnchorKey(key, "deleted-range/"), AnchoredOther, ID{}},
		{keys.AnchorKey(key, ""), AnchoredOther, ID{}},
	} {
		internalKey, suffix, err := keys.DecodeAnchorKey(c.stateKey)
		if err != nil || string(internalKey) != string(key) {
			t.Fatalf("%s: %q, %v", keys.PrettyState(c.stateKey), internalKey, err)
		}
		if got, id := Classify(suffix); got != c.want || id != c.id {
			t.Errorf("%s: %d of %s, want %d of %s", keys.PrettyState(c.stateKey), got, id, c.want, c.id)
		}
	}
}
