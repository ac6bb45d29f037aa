package replica

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A request with a command and nothing in it, which no client of ours sends, is refused like one
// without a command.
func TestCommandsWithoutContents(t *testing.T) {
	r, _, done := benchReplica(t)
	defer done()
	for _, q := range []*kvpb.Request{
		{},
		{Command: &kvpb.Request_Get{}},
		{Command: &kvpb.Request_Put{}},
		{Command: &kvpb.Request_Delete{}},
		{Command: &kvpb.Request_CompareAndSwap{}},
		{Command: &kvpb.Request_WriteBatch{}},
		{Command: &kvpb.Request_BatchGet{}},
		{Command: &kvpb.Request_Scan{}},
		{Command: &kvpb.Request_Count{}},
		{Command: &kvpb.Request_DeleteRange{}},
		{Command: &kvpb.Request_Now{}},
	} {
		q.Generation, q.Term, q.Sequence = 1, 1, 1
		var answers []*kvpb.Response
		r.Submit([]config.Pending{{Client: 1, Request: q,
			Reply: func(a *kvpb.Response) { answers = append(answers, a) }, Arrived: time.Now()}})
		r.node.Pool.Wait()
		r.node.Long.Wait()
		r.node.Pool.Wait()
		if len(answers) != 1 || answers[0].GetError().GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("%v is answered with %v", q, answers)
		}
	}
}
