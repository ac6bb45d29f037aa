package wire

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// reach calls visit for every sub-message and list that a message of a type can hold, with the
// fields that lead there.
func reach(message protoreflect.MessageDescriptor, path []protoreflect.FieldDescriptor,
	visit func(path []protoreflect.FieldDescriptor)) {
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		if field.Message() == nil && !field.IsList() {
			continue
		}
		if slices.Contains(path, field) {
			continue
		}
		to := append(slices.Clone(path), field)
		visit(to)
		if field.Message() != nil {
			reach(field.Message(), to, visit)
		}
	}
}

// Whatever of a server's messages can be repeated is counted, at any depth: a field that is added
// later cannot be forgotten.
func TestElementLimitReachesEverything(t *testing.T) {
	seen := 0
	// Peers send batches on connections that are no method's.
	inputs := map[protoreflect.FullName]protoreflect.MessageDescriptor{}
	batch := new(peerpb.MessageBatch).ProtoReflect().Descriptor()
	inputs[batch.FullName()] = batch
	for _, file := range []protoreflect.FileDescriptor{kvpb.File_kvpb_kv_proto,
		peerpb.File_peerpb_peer_proto, clusterpb.File_clusterpb_cluster_proto} {
		for i := range file.Services().Len() {
			methods := file.Services().Get(i).Methods()
			for j := range methods.Len() {
				input := methods.Get(j).Input()
				inputs[input.FullName()] = input
			}
		}
	}
	for _, input := range inputs {
		if shapes[input.FullName()] == nil {
			t.Fatalf("%s is not counted", input.FullName())
		}
		kind, err := protoregistry.GlobalTypes.FindMessageByName(input.FullName())
		if err != nil {
			t.Fatal(err)
		}
		refused := false
		reach(input, nil, func(path []protoreflect.FieldDescriptor) {
			seen++
			last := path[len(path)-1]
			repeated := func(n int) []byte {
				b := bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, last.Number(),
					protowire.BytesType), nil), n)
				if last.IsPacked() {
					b = protowire.AppendBytes(protowire.AppendTag(nil, last.Number(), protowire.BytesType),
						make([]byte, n))
				}
				for _, outer := range slices.Backward(path[:len(path)-1]) {
					b = protowire.AppendBytes(protowire.AppendTag(nil, outer.Number(), protowire.BytesType),
						b)
				}
				return b
			}
			const some = 5
			if count, err := shapes[input.FullName()].Count(repeated(some), 100); err != nil ||
				count != len(path)-1+some {
				t.Errorf("%s in %s: %d parts counted, %v", last.FullName(), input.Name(), count, err)
			}
			if last.IsPacked() {
				// The same list, a field for each number.
				b := bytes.Repeat(protowire.AppendVarint(protowire.AppendTag(nil, last.Number(),
					protowire.VarintType), 1), some)
				for _, outer := range slices.Backward(path[:len(path)-1]) {
					b = protowire.AppendBytes(protowire.AppendTag(nil, outer.Number(), protowire.BytesType),
						b)
				}
				if count, err := shapes[input.FullName()].Count(b, 100); err != nil ||
					count != len(path)-1+some {
					t.Errorf("%s, not packed: %d parts counted, %v", last.FullName(), count, err)
				}
			}
			if refused {
				return
			}
			refused = true
			tooMany := mem.SliceBuffer(repeated(MaxMessageParts + 1))
			err := (Codec{}).Unmarshal(mem.BufferSlice{tooMany}, kind.New().Interface())
			if !hasText(err, "parts") {
				t.Errorf("%d of %s in %s: %v", MaxMessageParts+1, last.FullName(), input.Name(), err)
			}
		})
	}
	if seen < 50 {
		t.Fatalf("looked at %d fields only", seen)
	}
}

// What is refused is refused before it is decoded, also if what it begins with is taken for valid
// by the decoder alone.
func TestElementLimitCannotBeDodged(t *testing.T) {
	inside := func(field protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
	}
	spans := inside(2, inside(28, inside(2, bytes.Repeat([]byte{3<<3 | 2, 0x00}, 4<<20))))
	group := func(begin, end protowire.Number) []byte {
		return protowire.AppendTag(protowire.AppendTag(nil, begin, protowire.StartGroupType), end,
			protowire.EndGroupType)
	}
	for name, before := range map[string][]byte{
		"nothing":          nil,
		"a known field":    inside(1, nil),
		"an unknown field": inside(99, []byte("x")),
		"a number": protowire.AppendVarint(protowire.AppendTag(nil, 98,
			protowire.VarintType), 7),
		"a group":                group(97, 97),
		"a group of two numbers": group(97, 96),
		"a field beyond 32 bits": protowire.AppendVarint(protowire.AppendVarint(nil, (1<<32+99)<<3), 7),
		"a number of 70 bits": append(protowire.AppendTag(nil, 95, protowire.VarintType), 0xff,
			0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
	} {
		b := append(bytes.Clone(before), spans...)
		if err := UnmarshalOwned(b, new(kvpb.BatchRequest)); err == nil {
			t.Errorf("after %s: %d spans in %d bytes were decoded", name, 4<<20, len(b))
		}
	}
}

// The largest transactions that servers take are not too many parts.
func TestElementLimitLetsTransactionsPass(t *testing.T) {
	const most = 100_000
	keys, spans := make([][]byte, most), make([]*kvpb.KeySpan, most)
	mutations, participants := make([]*kvpb.Mutation, most), make([]*kvpb.Participant, most)
	for i := range most {
		keys[i], spans[i] = []byte("0123456789"),
			&kvpb.KeySpan{Start: []byte("begin"), End: []byte("end")}
		mutations[i], participants[i] = &kvpb.Mutation{Key: keys[i], Value: []byte("value")},
			&kvpb.Participant{Keyspace: 1, Key: keys[i], Hash: new(uint32), Last: []byte("0123456799")}
	}
	resolutions := make([]*kvpb.Resolution, 10_000)
	for i := range resolutions {
		resolutions[i] = &kvpb.Resolution{Transaction: make([]byte, 100),
			Status: &kvpb.TransactionStatus{State: 1, Timestamp: &kvpb.Timestamp{Wall: 1}}}
	}
	identity := &kvpb.Transaction{Id: make([]byte, 16), Begun: &kvpb.Timestamp{Wall: 1},
		Anchor: keys[0], Started: &kvpb.Timestamp{Wall: 1}}
	for name, r := range map[string]*kvpb.Request{
		"prepare": {Command: &kvpb.Request_Prepare{
			Prepare: &kvpb.PrepareRequest{Transaction: identity, Mutations: mutations,
				OnePhase: &kvpb.OnePhase{Reads: &kvpb.ReadSet{At: &kvpb.Timestamp{Wall: 1},
					Keys: keys[:most/2], Spans: spans[:most/2]}}}}},
		"refresh of keys": {Command: &kvpb.Request_Refresh{
			Refresh: &kvpb.RefreshRequest{Reads: &kvpb.ReadSet{Keys: keys}}}},
		"refresh of spans": {Command: &kvpb.Request_Refresh{
			Refresh: &kvpb.RefreshRequest{Reads: &kvpb.ReadSet{Spans: spans}}}},
		"end": {Command: &kvpb.Request_EndTransaction{
			EndTransaction: &kvpb.EndTransactionRequest{Transaction: identity,
				Participants: participants}}},
		"resolve": {Command: &kvpb.Request_Resolve{
			Resolve: &kvpb.ResolveRequest{Resolutions: resolutions}}},
	} {
		b, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{r}})
		if err != nil {
			t.Fatal(err)
		}
		if len(b) < countedFrom {
			t.Errorf("%s is of %d bytes and not counted", name, len(b))
		}
		if err := UnmarshalOwned(b, new(kvpb.BatchRequest)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
