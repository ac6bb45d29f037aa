package kv

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// An error names what the call was about, and the key that was in the way beside it, whose
// Error.Key it is.
func TestErrorsTellTheKeyFromTheCall(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		k, l := keys.KeyspaceID(c.AddKeyspace("k", 2)), keys.KeyspaceID(c.AddKeyspace("l", 2))
		client := c.open()
		defer client.Close()
		wounded := committer.Error{Kind: committer.ErrAborted, Reason: kvpb.AbortReason_WOUNDED,
			Other: []byte{0xab}}
		conflict := committer.Error{Kind: committer.ErrConflict}
		lost := committer.Error{Kind: committer.ErrConflict, LeaderChanged: true}
		for _, x := range []struct {
			op, keyspace, key string
			err               committer.Error
			at                keys.KeyspaceID
			want              string
		}{
			{"get-for-update", "k", "x1", wounded, k,
				`get-for-update "x1" in keyspace "k": the transaction was aborted, ` +
					`because an older one (ab) wanted the key, which it had locked`},
			{"get-for-update", "k", "x2", wounded, k,
				`get-for-update "x2" in keyspace "k": the transaction was aborted, ` +
					`because an older one (ab) wanted "x1", which it had locked`},
			{"get-for-update", "k", "x1", wounded, l,
				`get-for-update "x1" in keyspace "k": the transaction was aborted, ` +
					`because an older one (ab) wanted "x1" in keyspace "l", which it had locked`},
			{"commit", "", "", wounded, k,
				`commit "x1" in keyspace "k": the transaction was aborted, ` +
					`because an older one (ab) wanted the key, which it had locked`},
			{"get", "k", "x2", conflict, k,
				`get "x2" in keyspace "k": "x1" was changed after the transaction had read it`},
			{"scan", "k", "", conflict, k,
				`scan in keyspace "k": "x1" was changed after the transaction had read it`},
			{"commit", "", "", conflict, k,
				`commit "x1" in keyspace "k": the key was changed after the transaction had read it`},
			{"get", "k", "x2", lost, k,
				`get "x2" in keyspace "k": the leader of the partition of "x1" changed, ` +
					`and with it went the lock`},
		} {
			of := x.err
			of.Key = committer.Key{Keyspace: x.at, Key: []byte("x1")}
			err := client.wrapTxn(x.op, x.keyspace, []byte(x.key), &of)
			e := asError(err)
			if !strings.HasPrefix(err.Error(), "tidemark: "+x.want) || string(e.Key) != "x1" ||
				e.Keyspace != map[keys.KeyspaceID]string{k: "k", l: "l"}[x.at] {
				t.Errorf("%v (%q of %q)\nwant %s", err, e.Key, e.Keyspace, x.want)
			}
			// Update does not tell what the last call was about.
			last := inVain("update", 2, "gave up: ", err, nil)
			if want := `update "x1" in keyspace "` + e.Keyspace +
				`": `; !strings.Contains(last.Error(), want) {
				t.Errorf("%v\nwant %s", last, want)
			}
		}
	})
}

// No sentence says the partition and the node twice, and a timestamp says when it is.
func TestErrorsSayItOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		client := c.open()
		defer client.Close()
		at := &route.Error{Partition: 100, Node: 3}
		with := func(change func(*route.Error)) *route.Error {
			e := *at
			change(&e)
			return &e
		}
		unknown := &committer.Error{Kind: committer.ErrOutcomeUnknown,
			Cause: with(func(e *route.Error) {
				e.Message, e.Cause = "partition p100: no answer", context.DeadlineExceeded
				e.OutcomeUnknown, e.Attempts = true, 2
			})}
		late := hlc.Timestamp{Wall: 1_893_456_000_000_000_000}
		for want, err := range map[string]error{
			`tidemark: put in keyspace "k": nobody leads it (partition p100, node n3)`: wrap(
				"put", "k", nil,
				with(func(e *route.Error) { e.Message = "partition p100: nobody leads it" })),
			`tidemark: put in keyspace "k": the disk is slow (partition p100, node n3)`: wrap(
				"put", "k", nil,
				with(func(e *route.Error) { e.Message = "node n3: the disk is slow" })),
			`tidemark: put in keyspace "k": partition p7: nobody leads it ` +
				"(partition p100, node n3)": wrap("put", "k", nil,
				with(func(e *route.Error) { e.Message = "partition p7: nobody leads it" })),
			"tidemark: commit: the transaction may or may not be committed, or may be yet: " +
				"timed out, no answer (2 attempts); ask kv.Outcome, or read what it has written, " +
				"to find out (attempt 2 of the transaction, partition p100, node n3)": inAttempt(
				client.wrapTxn("commit", "", nil, unknown), 2),
			`tidemark: get in keyspace "k": it is too late; read an earlier moment ` +
				`(1893456000.000000000.0 is 2030-01-01T00:00:00Z, ` +
				`1893455999.250000001.7 is 2029-12-31T23:59:59.25Z)`: wrap("get", "k", nil,
				&route.Error{Code: kvpb.ErrorCode_TIMESTAMP_IN_FUTURE, Message: "it is too late",
					Refused: late, Timestamp: hlc.Timestamp{Wall: late.Wall - 749_999_999, Logical: 7}}),
			"tidemark: commit: a keyspace of the call does not exist any more: it was dropped": wrap(
				"commit", "", nil, &route.Error{Cause: route.ErrNoKeyspace}),
			`tidemark: get in keyspace "k": it is too late`: wrap("get", "k", nil,
				&route.Error{Message: "it is too late", Refused: hlc.MaxTimestamp}),
		} {
			if err.Error() != want {
				t.Errorf("%v\nwant %s", err, want)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := client.CreateKeyspace(ended, "cwk")
		want := `tidemark: create keyspace "cwk": the call was cancelled; ` +
			`no server had been asked yet`
		if !errors.Is(err, context.Canceled) || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	})
}
