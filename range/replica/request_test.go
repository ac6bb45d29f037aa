package replica

import (
	"testing"
	"time"

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
		r.Submit([]Pending{{Client: 1, Request: q,
			Reply: func(a *kvpb.Response) { answers = append(answers, a) }, Arrived: time.Now()}})
		r.node.Pool.workers.Wait()
		r.node.Long.workers.Wait()
		r.node.Pool.workers.Wait()
		if len(answers) != 1 || answers[0].GetError().GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT {
			t.Errorf("%v is answered with %v", q, answers)
		}
	}
}

// Every code that a request can end with has a counter of its own.
func TestOutcomesAreCounted(t *testing.T) {
	for code, name := range kvpb.ErrorCode_name {
		if int(code)+1 >= outcomeCount {
			t.Errorf("%s has none", name)
		}
	}
}
