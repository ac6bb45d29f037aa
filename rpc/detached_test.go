package rpc

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestDetached: the copy of a request says the same, and has none of the message's bytes.
func TestDetached(t *testing.T) {
	batch := &kvpb.BatchRequest{Requests: []*kvpb.Request{{Id: 7, Sequence: 3,
		Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("key"), Value: []byte("value")}}}}}
	message, err := batch.MarshalVT()
	if err != nil {
		t.Fatal(err)
	}
	received := new(kvpb.BatchRequest)
	if err := unmarshalOwned(message, received); err != nil {
		t.Fatal(err)
	}
	own := Detached(received.Requests[0])
	clear(message)
	if received.Requests[0].GetPut().Key[0] == 'k' {
		t.Fatal("a received request does not share the message's bytes; then there is " +
			"nothing to detach")
	}
	if !proto.Equal(own, batch.Requests[0]) {
		t.Errorf("%v, want %v", own, batch.Requests[0])
	}
}
