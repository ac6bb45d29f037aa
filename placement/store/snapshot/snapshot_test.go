package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/cockroachkvs"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/release"
	"github.com/tidemarkdb/tidemark/rpc/release/golden"
)

const index, term = 7, 3

// collected is what came of a snapshot.
type collected map[string]string

func (c collected) Set(key, value []byte) error {
	c[string(key)] = string(value)
	return nil
}

// made is a store with a few blocks of versions, and its snapshot.
func made(t testing.TB) (want collected, data []byte, l *tables.Layout) {
	t.Helper()
	l = tables.NewLayout(keys.CorePartition)
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(), Comparer: &cockroachkvs.Comparer})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	want = collected{string(l.Applied): string(tables.EncodeApplied(index, term))}
	record := &storepb.VersionRecord{CreateRevision: 2, Version: 1,
		Value: bytes.Repeat([]byte("v"), blockTarget/4)}
	value, err := proto.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		want[string(l.Version(fmt.Append(nil, "k", i), 2))] = string(value)
	}
	for key, value := range want {
		if err := db.Set([]byte(key), []byte(value), nil); err != nil {
			t.Fatal(err)
		}
	}
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := errors.Join(Write(context.Background(), &b, it, index, term), it.Close()); err != nil {
		t.Fatal(err)
	}
	return want, b.Bytes(), l
}

// Streams are written and read as in every release.
func TestGolden(t *testing.T) {
	l := tables.NewLayout(keys.CorePartition)
	golden.Check(t, "stream", func(*release.Active) []golden.Record {
		db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem(),
			Comparer: &cockroachkvs.Comparer})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		value, err := proto.Marshal(&storepb.VersionRecord{CreateRevision: 2, Version: 1,
			Value: []byte("value")})
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{string(l.Applied): string(
			tables.EncodeApplied(index, term)), string(l.Version([]byte("k"), 2)): string(value),
			string(l.Event(2, 0)): "k"} {
			if err := db.Set([]byte(key), []byte(value), nil); err != nil {
				t.Fatal(err)
			}
		}
		it, err := db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := errors.Join(Write(context.Background(), &b, it, index, term), it.Close()); err != nil {
			t.Fatal(err)
		}
		return []golden.Record{{Name: "store", Data: b.Bytes()}}
	}, func(r golden.Record) error {
		s := pairReader{r: bytes.NewReader(r.Data)}
		_, _, err := s.header()
		for err == nil {
			_, _, err = s.next()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return err
	})
}

// A copy has the pairs of the state, and a snapshot that is cut at any place is damaged.
func TestCopy(t *testing.T) {
	want, data, l := made(t)
	got := collected{}
	if _, err := Copy(t.Context(), bytes.NewReader(data), got, l, index, term); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Errorf("%d pairs, want %d", len(got), len(want))
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%x has come with another value", key)
		}
	}
	for cut := 0; cut < len(data); cut += max(1, len(data)/200) {
		_, err := Copy(t.Context(), bytes.NewReader(data[:cut]), collected{}, l, index, term)
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("cut after %d of %d bytes: %v", cut, len(data), err)
		}
	}
	if _, err := Copy(t.Context(), bytes.NewReader(data), collected{}, l, index+1,
		term); !errors.Is(err, ErrDamaged) {
		t.Errorf("of another index: %v", err)
	}
}

func FuzzCopy(f *testing.F) {
	_, data, l := made(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = Copy(t.Context(), bytes.NewReader(data), collected{}, l, index, term)
		in := &pairReader{r: bytes.NewReader(data), blocks: 1, content: data}
		for {
			if _, _, err := in.next(); err != nil {
				return
			}
		}
	})
}
