package archive

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

// No bytes make a reader panic, and it fails with an error of this package. The second run has a
// right outer checksum, so that the layers below are reached.
func FuzzOpen(f *testing.F) {
	identity := newIdentity(f)
	for _, o := range []Options{{}, {Recipients: Recipients{identity.Recipient()}}} {
		f.Add(small(f, o))
		blob, _, err := Seal("manifest", []byte("content"), o)
		must(f, err)
		f.Add(blob)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for range 2 {
			_, _, err1 := readAll(data, Identities{identity})
			_, err2 := Unseal(data, "manifest", Identities{identity})
			if err1 == nil && err2 == nil {
				t.Fatal("it is a piece and a blob")
			}
			for _, err := range []error{err1, err2} {
				if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) &&
					!errors.Is(err, ErrNoIdentity) {
					t.Fatal(err)
				}
			}
			if len(data) < outerHeader+checksum {
				return
			}
			data = withChecksum(data)
		}
	})
}

// FuzzPayload has right layers and checksums around the bytes. Records that are read can be written
// again, and are read the same.
func FuzzPayload(f *testing.F) {
	h := testHeader()
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{0, 0, 1, 'k', 0, 1, 'v', flagSameKey | flagTombstone, 1}, uint64(2))
	f.Add([]byte{flagLogical | flagExpiry, 0, 2, 'k', 'l', 3, 9, 8, 0, 0, 1, 1, 'm', 0, 0}, uint64(2))
	f.Fuzz(func(t *testing.T, records []byte, count uint64) {
		_, got, err := readAll(wrap(t, contentPiece, piece(t, h, records, count)), nil)
		if err != nil {
			wants(t, err, ErrCorrupt)
			return
		}
		if uint64(len(got)) != count {
			t.Fatalf("%d records of %d", len(got), count)
		}
		_, again, err := readAll(seal(t, h, Options{}, got), nil)
		if must(t, err); !slices.EqualFunc(got, again, sameRecord) {
			t.Fatalf("%v came back as %v", got, again)
		}
	})
}

// FuzzHeader has any bytes in place of the header.
func FuzzHeader(f *testing.F) {
	text, err := testHeader().MarshalJSON()
	must(f, err)
	f.Add(text)
	f.Add([]byte(`{"kind":"a","at":"1","after":"0","start":"AA==","end":"AQ==","sequence":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		payload := append(binary.AppendUvarint(nil, uint64(len(text))), text...)
		payload = binary.LittleEndian.AppendUint64(payload, 0)
		r, err := Open(wrap(t, contentPiece, payload), nil)
		if err != nil {
			wants(t, err, ErrCorrupt)
			return
		}
		if err := r.Header().check(); err != nil {
			t.Fatal(err)
		}
	})
}
