package wire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

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
		"value": {Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k"),
			Value: treacherous}}},
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
		if err := decode(b, new(kvpb.BatchRequest)); !hasText(err, "parts") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"messages": treacherous,
		"entries":  inside(1, bytes.Repeat([]byte{13<<3 | 2, 0x00}, 4<<20)),
	} {
		if err := decode(b, new(peerpb.MessageBatch)); !hasText(err, "parts") {
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

// Messages of services that other packages bring are counted too.
func TestElementLimitOfOtherServices(t *testing.T) {
	empty := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), nil)
	for n, refused := range map[int]bool{MaxRequestParts: false, 4 * MaxRequestParts: true} {
		b := mem.BufferSlice{mem.SliceBuffer(bytes.Repeat(empty, n))}
		if err := (Codec{}).Unmarshal(b, &descriptorpb.FileDescriptorSet{}); (err != nil) != refused {
			t.Errorf("%d parts: %v", n, err)
		}
	}
	large := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		{Name: proto.String(strings.Repeat("x", 3*countedFrom))}}}
	b, err := Codec{}.Marshal(large)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Codec{}).Unmarshal(b, &descriptorpb.FileDescriptorSet{}); err != nil {
		t.Errorf("a large message of few parts: %v", err)
	}
}

func hasText(err error, text string) bool {
	return err != nil && strings.Contains(err.Error(), text)
}
