package kv

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A batch of exactly as many bytes as a batch may have is taken by the client, is no larger for a
// server than for the client, and fits into a message. With a byte more both refuse it.
func TestLargestBatch(t *testing.T) {
	type limits struct{ bytes, keys int }
	server := limits{request.MaxBatchBytes, request.MaxBatchOperations}
	for what, client := range map[string]limits{"batches": {maxBatchBytes, maxBatchKeys},
		"transactions": {writes.MaxBytes, writes.MaxKeys}} {
		if client != server {
			t.Errorf("%s of clients have the limits %v, servers %v", what, client, server)
		}
	}
	prefix := keys.KeyspacePrefix(7)
	partition := &clusterpb.Partition{Id: 3, Keyspace: 7, Generation: 1,
		PrefixLength: keys.KeyspacePrefixLength, Start: prefix, End: keys.PrefixEnd(prefix)}
	value := make([]byte, keys.MaxValueSize)
	for _, more := range []int{0, 1} {
		b := (&Keyspace{name: "k"}).Batch()
		for i := 0; b.Bytes() < maxBatchBytes; i++ {
			key := []byte{byte(i)}
			b.Put(key, value[:min(len(value), maxBatchBytes-b.Bytes()-len(key)+more)])
		}
		if b.Bytes() != maxBatchBytes+more || (b.err != nil) != (more > 0) {
			t.Errorf("a batch of %d bytes: %v", b.Bytes(), b.err)
		}
		operations := b.operations
		if more > 0 { // what the client has refused
			last := operations[0]
			operations = append(operations, &kvpb.WriteOperation{Key: []byte("more"),
				Value: last.Value[:1+maxBatchBytes-sizeOf(operations)-len("more")]})
		}
		q := &kvpb.Request{Command: &kvpb.Request_WriteBatch{
			WriteBatch: &kvpb.WriteBatchRequest{Operations: operations}}}
		if _, bad := command.Of(q).CheckWrite(partition, q); (bad != nil) != (more > 0) {
			t.Errorf("a server says to a batch of %d bytes: %+v", sizeOf(operations), bad)
		}
		if size := proto.Size(q); size > wire.MaxMessageBytes-1<<20 {
			t.Errorf("it takes %d bytes in a message", size)
		}
	}
}

func sizeOf(operations []*kvpb.WriteOperation) (size int) {
	for _, o := range operations {
		size += len(o.Key) + len(o.Value)
	}
	return size
}
