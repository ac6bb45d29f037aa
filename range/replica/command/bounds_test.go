package command

import (
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A batch and a prepare take what a client may send, to the last byte of keys and values, and
// nothing more; what they take in an entry fits into a message.
func TestLargestWrites(t *testing.T) {
	d := partitionUpTo('z')
	const values = request.MaxBatchBytes / keys.MaxValueSize
	value := make([]byte, keys.MaxValueSize)
	transaction := &kvpb.Transaction{Id: make([]byte, 16), Keyspace: 1, Anchor: []byte("a"),
		Begun: wire.ToTimestamp(at(1)), Started: wire.ToTimestamp(at(1))}
	transaction.Id[0] = 1
	for _, more := range []int{0, 1} {
		batch, prepare := &kvpb.WriteBatchRequest{}, &kvpb.PrepareRequest{Transaction: transaction,
			AtLeast: wire.ToTimestamp(at(1))}
		for i := range values {
			key, value := []byte{'a' + byte(i)}, value[:keys.MaxValueSize-1]
			if i == 0 {
				value = value[:len(value)-1+more]
				key = []byte("a\x00")
			}
			batch.Operations = append(batch.Operations, &kvpb.WriteOperation{Key: key, Value: value})
			prepare.Mutations = append(prepare.Mutations, &kvpb.Mutation{Key: key, Value: value})
		}
		for _, q := range []*kvpb.Request{
			{Command: &kvpb.Request_WriteBatch{WriteBatch: batch}},
			{Command: &kvpb.Request_Prepare{Prepare: prepare}},
		} {
			w, problem := Of(q).CheckWrite(d, q)
			if (problem != nil) != (more > 0) {
				t.Errorf("%s with %d bytes too many: %+v", Of(q).Name, more, problem)
			}
			if problem == nil && (w.Size < request.MaxBatchBytes || w.Size > request.MaxEntryBytes) {
				t.Errorf("%s: it takes %d bytes in an entry", Of(q).Name, w.Size)
			}
		}
	}
	const overhead = request.MaxBatchOperations * request.WriteOverhead
	if request.MaxBatchBytes+overhead > request.MaxEntryBytes ||
		request.MaxEntryBytes > wire.MaxMessageBytes-1<<20 {
		t.Error("the largest batch does not fit into a message")
	}
}
