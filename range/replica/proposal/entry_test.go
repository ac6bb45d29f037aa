package proposal

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
)

// sampleEntries are entries of every kind, with and without a batch.
func sampleEntries(t testing.TB) []Entry {
	t.Helper()
	var batch pebble.Batch
	for i := range 3 {
		if err := batch.Set(fmt.Appendf(nil, "key-%d", i), make([]byte, 200*i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Delete([]byte("gone"), nil); err != nil {
		t.Fatal(err)
	}
	return []Entry{
		{
			Kind: KindWrite, Proposer: 3, Sequence: 300, Base: 299,
			Highest: hlc.Timestamp{Wall: 1 << 60, Logical: 7},
			Delta:   Delta{LiveKeys: 2, Versions: 3, Bytes: 600}, Batch: batch.Repr(),
		},
		{Kind: KindWrite, Proposer: 1, Sequence: 1, Closed: hlc.Timestamp{Wall: 9, Logical: 1}},
		{Kind: KindThreshold, Proposer: 1, Sequence: 2, Base: 1, Threshold: hlc.Timestamp{Wall: 5}},
		{
			Kind: KindRemove, Proposer: 2, Sequence: 5,
			Delta: Delta{LiveKeys: -1, Versions: -4, Bytes: -1 << 40}, Batch: batch.Repr(),
		},
		{
			Kind: KindRemove, Proposer: 2, Sequence: 5,
			Delta: Delta{LiveKeys: -1, Versions: -4, Bytes: -100, Expiring: -3}, Batch: batch.Repr(),
		},
		{Kind: KindDescriptor, Proposer: 2, Sequence: 6, Base: 5, Batch: batch.Repr()},
		{Kind: KindTransaction, Proposer: 2, Sequence: 7, Base: 6, Batch: batch.Repr()},
	}
}

// What decodes encodes to the same bytes, and nothing panics.
func FuzzEntry(f *testing.F) {
	for _, e := range sampleEntries(f) {
		f.Add(e.Encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Fatalf("the error %v does not say that the entry is malformed", err)
			}
			return
		}
		if again := e.Encode(); !bytes.Equal(again, data) {
			t.Fatalf("%x decodes and encodes to %x", data, again)
		}
		_ = WalkBatch(e.Batch, func(bool, []byte, []byte) error { return nil })
	})
}

// Entries survive the log.
func TestEntriesDecodeAsTheyWere(t *testing.T) {
	for _, e := range sampleEntries(t) {
		got, err := Decode(e.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Batch, e.Batch) {
			t.Fatalf("batch %x became %x", e.Batch, got.Batch)
		}
		got.Batch, e.Batch = nil, nil
		if fmt.Sprint(got) != fmt.Sprint(e) {
			t.Fatalf("%+v became %+v", e, got)
		}
	}
}

// Logs of earlier versions hold this: it must decode for ever.
func TestEncodingDoesNotChange(t *testing.T) {
	e := Entry{
		Kind: KindTransaction, Proposer: 3, Sequence: 300, Base: 299,
		Highest: hlc.Timestamp{Wall: 1700000000000000000, Logical: 7},
		Closed:  hlc.Timestamp{Wall: 1600000000000000000},
		Delta:   Delta{LiveKeys: -1, Versions: 2, Bytes: 130},
		Batch:   []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 'k', 1, 'v'},
	}
	const want = "020503ac02ab028080a8b1e39fe7cb1707808080c5ddf0959a1600000001" +
		"04840200000000000000000100000001016b0176"
	if got := hex.EncodeToString(e.Encode()); got != want {
		t.Fatalf("encoded as %s, was %s", got, want)
	}
	e.Delta.Expiring = 2
	const expiring = "024503ac02ab028080a8b1e39fe7cb1707808080c5ddf0959a1600000001" +
		"0484020400000000000000000100000001016b0176"
	if got := hex.EncodeToString(e.Encode()); got != expiring {
		t.Fatalf("encoded as %s, was %s", got, expiring)
	}
	e.Delta.Expiring = 0
	// In version 1 a write that closed something was that of a leader which handed over.
	for kind, handsOver := range map[Kind]bool{KindWrite: true, KindTransaction: false} {
		e.Kind = kind
		data := e.Encode()
		data[0] = entryVersion1
		switch got, err := Decode(data); {
		case err != nil:
			t.Fatal(err)
		case got.HandsOver != handsOver || got.Closed != e.Closed:
			t.Errorf("kind %d of version 1: it hands over: %t, closes %s",
				kind, got.HandsOver, got.Closed)
		}
	}
}

// Decode refuses what no leader proposes.
func TestDecodeRefuses(t *testing.T) {
	valid := sampleEntries(t)
	for name, data := range map[string][]byte{
		"nothing":                 nil,
		"a version of the future": append([]byte{entryVersion + 1}, valid[0].Encode()[1:]...),
		"a version of the past":   append([]byte{0}, valid[0].Encode()[1:]...),
		"a later version that changes no number of expiries": (func() []byte {
			e := Entry{Kind: KindWrite, Proposer: 1, Sequence: 1, Delta: Delta{Expiring: 1}}
			data := e.Encode()
			data[len(data)-1] = 0
			return data
		})(),
		"an unknown kind": append([]byte{entryVersion, 99}, valid[0].Encode()[2:]...),
		"a cut header":    valid[0].Encode()[:9],
		"no proposer":     (&Entry{Kind: KindWrite, Sequence: 1}).Encode(),
		"no sequence":     (&Entry{Kind: KindWrite, Proposer: 1}).Encode(),
		"a base that is not before": (&Entry{
			Kind: KindWrite, Proposer: 1, Sequence: 4, Base: 4,
		}).Encode(),
		"half a batch header": (&Entry{
			Kind: KindWrite, Proposer: 1, Sequence: 1, Batch: make([]byte, batchHeaderLength-1),
		}).Encode(),
		"a threshold with a batch": (&Entry{
			Kind: KindThreshold, Proposer: 1, Sequence: 1, Batch: make([]byte, batchHeaderLength),
		}).Encode(),
		"a split that hands over": (&Entry{
			Kind: KindSplit, Proposer: 1, Sequence: 1, HandsOver: true,
		}).Encode(),
		"a write with a threshold": (&Entry{
			Kind: KindWrite, Proposer: 1, Sequence: 1, Threshold: hlc.Timestamp{Wall: 1},
		}).Encode(),
	} {
		if _, err := Decode(data); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
