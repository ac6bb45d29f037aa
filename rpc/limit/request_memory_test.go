package limit

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A decoded message counts as much memory as its encoding was counted for.
func TestDecodedBytes(t *testing.T) {
	txn := new(pb.TxnRequest)
	for range 1000 {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{
			RequestTxn: &pb.TxnRequest{Compare: []*pb.Compare{{Key: []byte("k")}, {}}}}})
	}
	fields := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for _, name := range []string{"a", "b", "c"} {
		fields.Fields[name] = structpb.NewStringValue(string(make([]byte, 500)))
	}
	for _, m := range []proto.Message{txn, fields, new(pb.PutRequest),
		&pb.PutRequest{Key: make([]byte, 100)},
		&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Filters: make([]pb.WatchCreateRequest_FilterType,
				2000)}}},
		protodesc.ToFileDescriptorProto(kvpb.File_kvpb_kv_proto),
		protodesc.ToFileDescriptorProto(clusterpb.File_clusterpb_cluster_proto)} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(len(b))
		if want >= countedCall {
			parts, err := wire.OtherShape(m).Count(b, wire.MaxMessageParts)
			if err != nil {
				t.Fatal(err)
			}
			want += int64(parts) * wire.PartBytes
		}
		if got := DecodedBytes(m); got != want {
			t.Errorf("%T: %d bytes, want %d", m, got, want)
		}
	}
}

// A goroutine that receives may outlive the handler of its stream. What it would take then, nobody
// would give back.
func TestNothingIsTakenAfterTheCall(t *testing.T) {
	bound := NewRequestMemory(8 << 20)
	call := bound.of("client")
	message := make([]byte, 1<<20)
	if !call.takeCall() || !call.take(message, nil) || bound.Held() < 1<<20 {
		t.Fatalf("%d bytes are held, %v", bound.Held(), call.refused)
	}
	call.end()
	if call.take(message, nil) || call.refused == nil || bound.Held() != 0 {
		t.Errorf("after the end %d bytes are held, refused: %v", bound.Held(), call.refused)
	}
}
