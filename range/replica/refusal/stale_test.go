package refusal

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// The node is asked for all that a request is about, be it in the partition or not.
func TestWhatARefusedRequestIsAbout(t *testing.T) {
	prefix := keys.HashPrefix(7, 3)
	at := func(key string) []byte { return append(keys.HashPrefix(7, 3), key...) }
	d := &clusterpb.Partition{Id: 1, Keyspace: 7, Hash: 3, PrefixLength: keys.HashPrefixLength,
		Start: at("d"), End: at("m")}
	for name, c := range map[string]struct {
		request *kvpb.Request
		want    keys.Span
	}{
		"key": {&kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("x")}}},
			keys.Span{Start: at("x"), End: at("x\x00")}},
		"keys": {&kvpb.Request{Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{
			Keys: [][]byte{[]byte("k"), []byte("b"), []byte("n")}}}},
			keys.Span{Start: at("b"), End: at("n\x00")}},
		"span": {&kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{
			Start: []byte("a"), End: []byte("f")}}}, keys.Span{Start: at("a"), End: at("f")}},
		"everything": {&kvpb.Request{Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{}}},
			keys.Span{Start: prefix, End: keys.PrefixEnd(prefix)}},
		"keys and spans": {&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
			Mutations: []*kvpb.Mutation{{Key: []byte("p")}}, OnePhase: &kvpb.OnePhase{
				Reads: &kvpb.ReadSet{Spans: []*kvpb.KeySpan{{Start: []byte("c"), End: []byte("e")}}},
			}}}}, keys.Span{Start: at("c"), End: at("p\x00")}},
		"nothing": {&kvpb.Request{Command: &kvpb.Request_InspectTransactions{
			InspectTransactions: &kvpb.InspectTransactionsRequest{}}}, keys.PartitionSpan(d)},
		"no command": {&kvpb.Request{}, keys.PartitionSpan(d)},
	} {
		if got := asked(c.request, d); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
