package replica

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A Prepare that would return more than an answer may have is refused before it acquires a lock,
// volatile or not. As much as that, and any number of locks without their values, is not.
func TestPrepareReturnsBoundedValues(t *testing.T) {
	i := newInterleaving(t)
	i.s.transactions = map[string]*kvpb.Transaction{
		"T1": {Id: transactionID("T1"), Keyspace: 7, Anchor: []byte("k"), Begun: parseStamp("10"),
			Started: parseStamp("10")}}
	put := func(key string, size int) {
		i.submit(fmt.Sprintf("put %s v size=%d", key, size))
		if answers := i.step(); len(answers) != 1 || answers[0].GetPut() == nil {
			t.Fatalf("put %s: %v", key, answers)
		}
	}
	var full []string
	for n := range request.MaxBatchBytes / keys.MaxValueSize {
		key := fmt.Sprintf("k%d", n)
		put(key, keys.MaxValueSize)
		full = append(full, key+"=lock")
	}
	put("one", 1)
	locked := func() int {
		i.leader.replica.m.Mu.Lock()
		defer i.leader.replica.m.Mu.Unlock()
		return i.leader.replica.m.Mu.Locks.Len()
	}
	tooMuch := strings.Join(append(full, "absent=lock", "one=lock"), ",")
	for _, request := range []string{"prepare T1 %s values volatile", "prepare T1 %s values"} {
		answers := append(i.submit(fmt.Sprintf(request, tooMuch)), i.step()...)
		if len(answers) != 1 || answers[0].GetError().GetCode() != kvpb.ErrorCode_INVALID_ARGUMENT ||
			!strings.Contains(answers[0].Error.Message, "lock fewer keys at a time") || locked() != 0 {
			t.Fatalf("%s: %d answers, %v; %d keys are locked", request, len(answers),
				answers[0].GetError(), locked())
		}
	}
	for n, request := range []string{
		fmt.Sprintf("prepare T1 %s,absent=lock values volatile", strings.Join(full, ",")),
		fmt.Sprintf("prepare T1 %s", tooMuch)} {
		answers := append(i.submit(request), i.step()...)
		if len(answers) != 1 || answers[0].GetPrepare() == nil || locked() != len(full)+1+n {
			t.Fatalf("%s: %d answers, %v; %d keys are locked", request, len(answers),
				answers[0].GetError(), locked())
		}
	}
}
