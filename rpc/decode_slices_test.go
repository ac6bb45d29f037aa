package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// largeBatch has fields of all kinds that are decoded apart: requests larger than a slice, a oneof
// whose message is, parts that are, and what is unknown.
func largeBatch(t testing.TB) []byte {
	put := func(n int) *kvpb.Request {
		return &kvpb.Request{Id: uint64(n), Partition: 7, Command: &kvpb.Request_Put{
			Put: &kvpb.PutRequest{Key: []byte("key"), Value: bytes.Repeat([]byte("v"), n)}}}
	}
	batch := &kvpb.WriteBatchRequest{}
	for i := range 3000 {
		batch.Operations = append(batch.Operations, &kvpb.WriteOperation{
			Key: bytes.Repeat([]byte{byte(i)}, i%20), Value: make([]byte, i%7*i)})
	}
	resolve := &kvpb.ResolveRequest{}
	for i := range 500 {
		resolve.Resolutions = append(resolve.Resolutions, &kvpb.Resolution{
			Transaction: []byte("transaction"), Anchor: make([]byte, i%50*100)})
	}
	b, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{
		put(1), put(sliceBytes), put(100_000), {},
		{Id: 2, Command: &kvpb.Request_WriteBatch{WriteBatch: batch}, Term: 9},
		put(3), {Id: 4, Command: &kvpb.Request_Resolve{Resolve: resolve}}, put(5)}})
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(b, 1000, protowire.BytesType), make([]byte, 5000))
}

// decodesAlike decodes in slices and at once, and compares.
func decodesAlike(t *testing.T, b []byte) (slices int) {
	t.Helper()
	var whole, sliced kvpb.BatchRequest
	wholeErr := whole.UnmarshalVTUnsafe(b)
	slicedErr := decodeSlices(b, &sliced, func() { slices++ })
	switch {
	case wholeErr == nil && slicedErr == nil:
		if !proto.Equal(&whole, &sliced) {
			t.Errorf("decoded at once it is %v, in slices %v", &whole, &sliced)
		}
	case slicedErr == nil:
		t.Errorf("decoded in slices although it is not valid: %v", wholeErr)
	case wholeErr == nil && proto.Unmarshal(b, new(kvpb.BatchRequest)) == nil:
		t.Errorf("not decoded in slices: %v", slicedErr)
	}
	return slices
}

func TestDecodeSlices(t *testing.T) {
	b := largeBatch(t)
	if n := decodesAlike(t, b); n < len(b)/sliceBytes/50 {
		t.Errorf("%d bytes are decoded in %d slices", len(b), n)
	}
	decodesAlike(t, nil)
	for cut := range 3 * sliceBytes {
		decodesAlike(t, b[:cut])
	}
	// A oneof that comes again adds to what is there, and one of another kind replaces it.
	again := append(bytes.Clone(b), b...)
	decodesAlike(t, again)
	var request []byte
	for _, q := range []*kvpb.Request{
		{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Value: make([]byte, 5000)}}},
		{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: make([]byte, 5000)}}},
		{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: make([]byte, 5000)}}},
		{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("x")}}},
	} {
		one, err := proto.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		request = append(request, one...)
		decodesAlike(t, protowire.AppendBytes(
			protowire.AppendTag(nil, 2, protowire.BytesType), request))
	}
}

func FuzzDecodeSlices(f *testing.F) {
	b := largeBatch(f)
	f.Add(b[:3*sliceBytes])
	f.Add(b[len(b)-20_000:])
	f.Fuzz(func(t *testing.T, b []byte) { decodesAlike(t, b) })
}

// BenchmarkDecodeEmptyOperations decodes 250,000 empty operations, at once and in slices.
func BenchmarkDecodeEmptyOperations(b *testing.B) {
	batch := &kvpb.WriteBatchRequest{Operations: make([]*kvpb.WriteOperation, 250_000)}
	for i := range batch.Operations {
		batch.Operations[i] = &kvpb.WriteOperation{}
	}
	encoded, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{
		{Command: &kvpb.Request_WriteBatch{WriteBatch: batch}}}})
	if err != nil {
		b.Fatal(err)
	}
	for name, decode := range map[string]func(*kvpb.BatchRequest) error{
		"whole": func(m *kvpb.BatchRequest) error { return m.UnmarshalVTUnsafe(encoded) },
		"slices": func(m *kvpb.BatchRequest) error {
			return decodeSlices(encoded, m, func() {})
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := decode(new(kvpb.BatchRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
