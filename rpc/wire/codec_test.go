package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

func samples() []proto.Message {
	put := &kvpb.Request{Partition: 100, Generation: 1, Session: &kvpb.Timestamp{Wall: 1 << 60},
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("k"),
			Value: bytes.Repeat([]byte("v"), 300)}}}
	get := &kvpb.Request{Partition: 100,
		Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("g")}}}
	version := &kvpb.Response{Id: 1, Now: &kvpb.Timestamp{Wall: 1 << 60}, Result: &kvpb.Response_Put{
		Put: &kvpb.PutResponse{Version: &kvpb.Timestamp{Wall: 1 << 60, Logical: 1}}}}
	value := &kvpb.Response{Id: 2,
		Result: &kvpb.Response_Get{Get: &kvpb.GetResponse{Found: true, Value: []byte("g")}}}
	return []proto.Message{
		&kvpb.BatchRequest{Hello: &kvpb.Hello{Client: 1, Stream: 2, Cluster: 3},
			Requests: []*kvpb.Request{put, get}},
		&kvpb.BatchResponse{Responses: []*kvpb.Response{version, value,
			ErrorResponse(3, kvpb.ErrorCode_OVERLOADED, "busy")}},
		&peerpb.MessageBatch{Messages: []*peerpb.RaftMessage{{Group: 7, Type: 3,
			Entries: []*peerpb.Entry{{Term: 1, Index: 2, Data: []byte("entry")}}}},
			Ping: &peerpb.HostPing{Incarnation: 1, Wall: 5}},
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

// TestCloneRequest: the copy of a request says the same, and has none of the message's bytes.
func TestCloneRequest(t *testing.T) {
	batch := &kvpb.BatchRequest{Requests: []*kvpb.Request{{Id: 7, Sequence: 3,
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("key"), Value: []byte("value")}}}}}
	message, err := batch.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	received := new(kvpb.BatchRequest)
	if err := UnmarshalOwned(message, received); err != nil {
		t.Fatal(err)
	}
	own := CloneRequest(received.Requests[0])
	clear(message)
	if received.Requests[0].GetPut().Key[0] == 'k' {
		t.Fatal("a received request does not share the message's bytes; then there is " +
			"nothing to detach")
	}
	if !proto.Equal(own, batch.Requests[0]) {
		t.Errorf("%v, want %v", own, batch.Requests[0])
	}
}

func TestVarintSize(t *testing.T) {
	for _, x := range []uint64{0, 1, 127, 128, 16383, 16384, 1<<63 - 1, 1 << 63, 1<<64 - 1} {
		if got, want := VarintSize(x), len(binary.AppendUvarint(nil, x)); got != want {
			t.Errorf("%d: %d, want %d", x, got, want)
		}
	}
}

func TestBufferPool(t *testing.T) {
	for _, size := range []int{0, 1, 255, 256, 257, 4096, 5000, 1 << 20, 1<<20 + 1} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			for range 3 {
				b := Buffers.Get(size)
				if len(*b) != size {
					t.Fatal(len(*b))
				}
				Buffers.Put(b)
			}
		})
	}
	odd := make([]byte, 10, 300) // of another maker: goes to the size it can serve
	Buffers.Put(&odd)
	for range 4 {
		if b := Buffers.Get(200); len(*b) != 200 || cap(*b) < 256 {
			t.Fatal(len(*b), cap(*b))
		}
	}
	tiny := make([]byte, 3)
	Buffers.Put(&tiny)
}
