package rpc

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

func samples() []proto.Message {
	return []proto.Message{
		&kvpb.BatchRequest{Hello: &kvpb.Hello{Client: 1, Stream: 2, Cluster: 3},
			Requests: []*kvpb.Request{put("k", bytes.Repeat([]byte("v"), 300)), get("g")}},
		&kvpb.BatchResponse{Responses: []*kvpb.Response{echo(put("k", nil)), echo(get("g")),
			errorResponse(3, kvpb.ErrorCode_OVERLOADED, "busy")}},
		&peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{{Group: 7, Type: 3,
			Entries: []*peerpb.Entry{{Term: 1, Index: 2, Data: []byte("entry")}}}}, Ping: ping(5)},
		&peerpb.SnapshotChunk{Sequence: 3, Data: []byte("data"), Checksum: 9, Last: true},
		&clusterpb.StatusResponse{Cluster: 5, Members: []*clusterpb.CoreMember{{Address: "a:1"}}},
		durationpb.New(5), // without generated marshalling
	}
}

// Messages survive the codec, whatever pieces they arrive in, and are standard protobuf.
func TestCodecRoundTrip(t *testing.T) {
	for _, m := range samples() {
		data, err := Codec{}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		encoded := data.Materialize()
		data.Free()
		standard := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(encoded, standard); err != nil || !proto.Equal(m, standard) {
			t.Fatalf("%T: %v, %v", m, standard, err)
		}
		for _, pieces := range []int{1, 2, 7} {
			var slice mem.BufferSlice
			for piece := 0; piece < pieces; piece++ {
				from, to := piece*len(encoded)/pieces, (piece+1)*len(encoded)/pieces
				slice = append(slice, mem.SliceBuffer(bytes.Clone(encoded[from:to])))
			}
			got := m.ProtoReflect().New().Interface()
			if err := (Codec{}).Unmarshal(slice, got); err != nil || !proto.Equal(m, got) {
				t.Fatalf("%T in %d pieces: %v, %v", m, pieces, got, err)
			}
		}
	}
}

// What a decoded batch holds stays valid when gRPC reuses the buffers it came in.
func TestCodecOwnsItsBuffer(t *testing.T) {
	for _, m := range samples()[:4] {
		data, err := Codec{}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		wire := data.Materialize()
		got := m.ProtoReflect().New().Interface()
		if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(wire)}, got); err != nil {
			t.Fatal(err)
		}
		for i := range wire {
			wire[i] = 0xff
		}
		if !proto.Equal(m, got) {
			t.Fatalf("%T changed with the buffer it was read from", m)
		}
	}
}

func TestCodecRefusesOthers(t *testing.T) {
	if _, err := (Codec{}).Marshal("text"); err == nil {
		t.Fatal("marshalled a string")
	}
	if err := (Codec{}).Unmarshal(nil, new(string)); err == nil {
		t.Fatal("unmarshalled a string")
	}
	if (Codec{}).Name() != "proto" {
		t.Fatal("another name would be another content type")
	}
}

func fuzzDecode(f *testing.F, fresh func() proto.Message) {
	for _, m := range samples() {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(len(b)/2))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		at := min(int(cut), len(b))
		m := fresh()
		if err := (Codec{}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b[:at]),
			mem.SliceBuffer(b[at:])}, m); err != nil {
			return
		}
		// What was understood can be said again, and means the same.
		data, err := Codec{}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again := fresh()
		if err := (Codec{}).Unmarshal(data, again); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m, again) {
			t.Fatalf("%v\n%v", m, again)
		}
	})
}

func FuzzBatchRequest(f *testing.F) {
	fuzzDecode(f, func() proto.Message { return new(kvpb.BatchRequest) })
}
func FuzzBatchResponse(f *testing.F) {
	fuzzDecode(f, func() proto.Message { return new(kvpb.BatchResponse) })
}
func FuzzMessageBatch(f *testing.F) {
	fuzzDecode(f, func() proto.Message { return new(peerpb.MessageBatch) })
}
func FuzzSnapshotChunk(f *testing.F) {
	fuzzDecode(f, func() proto.Message { return new(peerpb.SnapshotChunk) })
}
