package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// The largest legitimate messages pass, whatever their values look like; what is small on the wire
// and huge in memory is refused before it is decoded.
func TestElementLimit(t *testing.T) {
	decode := func(b []byte, m any) error {
		return Codec{}.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	}
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	transaction := &kvpb.WriteBatchRequest{}
	for range 100_000 {
		transaction.Operations = append(transaction.Operations,
			&kvpb.WriteOperation{Key: []byte("0123456789"), Value: []byte("v")})
	}
	treacherous := bytes.Repeat([]byte{0x0a, 0x00}, 4<<20) // looks like four million empty fields
	for name, m := range map[string]*kvpb.Request{
		"transaction": {Command: &kvpb.Request_WriteBatch{WriteBatch: transaction}},
		"value":       put("k", treacherous),
		"operation": {Command: &kvpb.Request_WriteBatch{WriteBatch: &kvpb.WriteBatchRequest{
			Operations: []*kvpb.WriteOperation{{Key: []byte("k"), Value: treacherous}}}}},
	} {
		if err := decode(encode(&kvpb.BatchRequest{Requests: []*kvpb.Request{m}}),
			new(kvpb.BatchRequest)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := decode(encode(&peerpb.MessageBatch{
		Messages: []*peerpb.RaftMessage{{Context: treacherous,
			Entries: []*peerpb.Entry{{Data: treacherous}}}}}), new(peerpb.MessageBatch)); err != nil {
		t.Error(err)
	}

	inside := func(field protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
	}
	requests := bytes.Repeat([]byte{2<<3 | 2, 0x00}, 4<<20)
	for name, b := range map[string][]byte{
		"requests":   requests,
		"operations": inside(2, inside(20, treacherous)),
		"keys":       inside(2, inside(21, treacherous)),
	} {
		if err := decode(b, new(kvpb.BatchRequest)); !contains(err, "parts") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"messages": treacherous,
		"entries":  inside(1, bytes.Repeat([]byte{13<<3 | 2, 0x00}, 4<<20)),
	} {
		if err := decode(b, new(peerpb.MessageBatch)); !contains(err, "parts") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, b := range [][]byte{append(make([]byte, 0, 2<<20), bytes.Repeat([]byte{0xff}, 2<<20)...),
		bytes.Repeat([]byte{0x0a}, 2<<20),
		append(bytes.Repeat([]byte{0x10, 0x01}, 1<<20), 0x12, 0x7f)} {
		if err := decode(b, new(kvpb.BatchRequest)); err == nil {
			t.Error("garbage was understood")
		}
	}
}
