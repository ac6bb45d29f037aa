package command

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func put(key string) *storepb.Op {
	return &storepb.Op{Op: &storepb.Op_Put{Put: &storepb.Put{Key: []byte(key)}}}
}

func txn(ops ...*storepb.Op) *storepb.Command {
	return &storepb.Command{Op: &storepb.Command_Txn{Txn: &storepb.Txn{Success: ops}}}
}

func FuzzCommand(f *testing.F) {
	for _, c := range []*storepb.Command{txn(put("a")), {Session: 9,
		Op: &storepb.Command_SessionClose{SessionClose: &storepb.SessionClose{}}},
		{Op: &storepb.Command_Compact{Compact: &storepb.Compact{Revision: 5}}},
		{Op: &storepb.Command_LeaseGrant{LeaseGrant: &storepb.LeaseGrant{Id: 1, TtlMillis: 2}}}} {
		data, err := Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, _, err := Decode(data)
		if err != nil {
			return
		}
		_ = Validate(c)
		again, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Decode(again); err != nil {
			t.Fatalf("decoded, encoded and not decoded again: %v", err)
		}
	})
}

// A command that is nested too deep to be decoded on a stack is refused.
func TestDeepNesting(t *testing.T) {
	buffer := make([]byte, 4<<20)
	at, size := len(buffer), 0
	wrap := func(field protowire.Number) {
		head := protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType),
			uint64(size))
		at -= len(head)
		copy(buffer[at:], head)
		size += len(head)
	}
	for levels := 0; size < len(buffer)-64; levels++ {
		wrap(fieldOpTxn)
		wrap(fieldTxnSuccess)
	}
	wrap(fieldCommandTxn)
	if _, _, err := Decode(append([]byte{FirstFormat}, buffer[at:]...)); err == nil {
		t.Error("it is decoded")
	}
	nested := txn(put("a"))
	for range maxNesting {
		nested = txn(&storepb.Op{Op: &storepb.Op_Txn{Txn: nested.GetTxn()}})
	}
	data, err := Encode(nested)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Decode(data); err != nil {
		t.Errorf("what may be proposed is not decoded: %v", err)
	}
}
