package route

import (
	"context"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// What became of a write of several keys of one partition whose partition is not one any more.
//
// The attempts of a write carry the client, sequence and session that are its identity, and each
// version that it makes carries client and sequence, above the session. When an answer is lost, the
// write is sent again, and the partition finds the version that the first attempt made. But if the
// partition has split meanwhile, no partition holds all the keys, and the write cannot be sent
// again. To send each half its part with the same identity would be safe for each key: what was
// executed is found again, what was not takes effect once. But a write of which no attempt was
// executed would then happen in two halves, one perhaps without the other.
//
// So it is asked, with the same identity, at one of the keys of which the write makes a version:
// by a compare-and-swap that expects what no key has. The write is one entry of a log, so that
// one version stands for all of them.
//
//   - An attempt was executed: its version went with its key into the partition that holds the key
//     now, and lies above the session. That partition finds it, as it does for a retry, and
//     answers that the swap has happened, at the version's timestamp. It takes effect no second
//     time.
//   - None was: the answer that nothing was swapped is one for good (command.NothingDone): the
//     leader that gives it has proved that it leads, has ended the attempts that wait for a lock,
//     and finds in its queue, before the question, what came before it. What has not arrived yet
//     names an older generation or an older term, or came on a stream that is fenced, and is
//     refused. The keys can be written by other requests, with identities of their own.
//
// A session that is older than what the partition keeps is refused, here as there; the outcome
// stays unknown then.

// Executed finds out whether a write took effect that a call with an Identity has sent, and at
// which timestamp. key is one of which it makes a version, always. If it has not, it never will.
// The call is over, and no other with its Identity is under way.
func (s *Sender) Executed(ctx context.Context, call *Call, key []byte) (at hlc.Timestamp,
	executed bool, err error) {
	if !call.Identity.used() {
		return at, false, nil // it was not sent
	}
	answer, err := s.Do(ctx, &Call{Keyspace: call.Keyspace, Key: key, Write: true,
		Slack: call.Slack, Identity: call.Identity, Request: neverMet(key)})
	if err != nil {
		return at, false, err
	}
	swap := answer.GetCompareAndSwap()
	return wire.FromTimestamp(swap.GetVersion()), swap.GetSwapped(), nil
}
