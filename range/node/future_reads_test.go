package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// namings are requests that name a timestamp, in each of the places where they can.
var namings = map[string]func(ts *kvpb.Timestamp) *kvpb.Request{
	"session": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Session: ts, Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{}}}
	},
	"session of a read": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Session: ts, Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{}}}
	},
	"get": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{At: ts}}}
	},
	"batch get": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{At: ts}},
		}
	},
	"scan": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{At: ts}}}
	},
	"count": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{At: ts}}}
	},
	"merged scan": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_MergeScan{MergeScan: &kvpb.MergeScanRequest{At: ts}},
		}
	},
	"multi get": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{At: ts}},
		}
	},
	"refresh": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{To: ts}}}
	},
	"prepare": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{AtLeast: ts}},
		}
	},
	"one phase": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_Prepare{
				Prepare: &kvpb.PrepareRequest{
					OnePhase: &kvpb.OnePhase{Reads: &kvpb.ReadSet{At: ts}},
				},
			},
		}
	},
	"end": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{
			Command: &kvpb.Request_EndTransaction{
				EndTransaction: &kvpb.EndTransactionRequest{CommitTimestamp: ts},
			},
		}
	},
	"push": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{Above: ts}}}
	},
	"resolve": func(ts *kvpb.Timestamp) *kvpb.Request {
		return &kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
			Resolutions: []*kvpb.Resolution{{}, {Status: &kvpb.TransactionStatus{Timestamp: ts}}},
		}}}
	},
}

// A read that names a timestamp more than MaxAhead ahead of the physical clock waits until it is
// not, unless it is so far ahead that it is refused; in the same message others do not. What still
// waits when the node is closed is refused, and does not run.
func TestRequestsFromTheFutureWait(t *testing.T) {
	for name, request := range namings {
		if !command.Of(request(nil)).ReadOnly() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, nil)
				m := c.nodes[1]
				c.awaitServing(m)
				node, clock := m.Node, m.config.Clock
				offset := clock.MaxAhead()
				answers := make(chan *kvpb.Response, 8)
				id := uint64(0)
				ask := func(ahead ...time.Duration) {
					batch := make([]*kvpb.Request, len(ahead))
					for i, d := range ahead {
						ts := clock.Now().Add(d)
						ts.Wall = clock.Physical() + int64(d)
						batch[i] = request(wire.ToTimestamp(ts))
						id++
						batch[i].Id, batch[i].Sequence, batch[i].Partition = id, id, 1<<40
					}
					handle(node, 1, batch, func(r *kvpb.Response) { answers <- r })
					synctest.Wait()
				}
				answered := func(ids ...uint64) {
					t.Helper()
					synctest.Wait()
					got := map[uint64]*kvpb.Response{}
					for len(answers) > 0 {
						r := <-answers
						got[r.Id] = r
					}
					if len(got) != len(ids) {
						t.Fatalf("answered are %v, want %v", got, ids)
					}
					for _, id := range ids {
						if got[id] == nil {
							t.Fatalf("answered are %v, want %v", got, ids)
						}
					}
				}
				ask(offset/2, offset+offset/2, 2*offset+time.Second, 0, 2*offset-1)
				answered(1, 3, 4)
				time.Sleep(offset/2 - time.Millisecond)
				answered()
				time.Sleep(time.Millisecond)
				answered(2)
				time.Sleep(offset / 2)
				answered(5)

				// The node's clock has been set back, as far as it may, while it waits by timers.
				ask(offset + offset/2)
				m.physical.shift(-offset / 4)
				time.Sleep(offset / 2)
				answered()
				time.Sleep(offset / 4)
				answered(6)

				ask(offset + offset/2)
				answered()
				m.stop()
				synctest.Wait()
				if r := <-answers; r.Id != 7 || r.Error.GetCode() != kvpb.ErrorCode_NODE_UNHEALTHY {
					t.Errorf("when the node was closed the answer was %v", r)
				}
				handle(
					node,
					1,
					[]*kvpb.Request{request(wire.ToTimestamp(clock.Now().Add(2*offset - 1)))},
					func(r *kvpb.Response) { answers <- r },
				)
				if r := <-answers; r.Error.GetCode() != kvpb.ErrorCode_NODE_UNHEALTHY {
					t.Errorf("after the node was closed the answer was %v", r)
				}
			})
		})
	}
}

// A write that names such a timestamp is refused at once, and did not run; when the clock is near
// it is taken like others.
func TestWritesFromTheFutureAreRefused(t *testing.T) {
	refused := 0
	for name, request := range namings {
		if command.Of(request(nil)).ReadOnly() {
			continue
		}
		refused++
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, nil)
				m := c.nodes[1]
				c.awaitServing(m)
				clock := m.config.Clock
				offset := clock.MaxAhead()
				ts := hlc.Timestamp{Wall: clock.Physical() + int64(offset+offset/2)}
				ask := func(id uint64) kvpb.ErrorCode {
					q := request(wire.ToTimestamp(ts))
					q.Id, q.Sequence, q.Partition = id, id, 1<<40
					var answer *kvpb.Response
					handle(m.Node, 1, []*kvpb.Request{q}, func(r *kvpb.Response) { answer = r })
					synctest.Wait()
					return answer.GetError().GetCode()
				}
				if code := ask(1); code != kvpb.ErrorCode_OVERLOADED {
					t.Errorf("answered %s", code)
				}
				time.Sleep(offset / 2)
				if code := ask(1); code == kvpb.ErrorCode_OVERLOADED {
					t.Errorf("answered %s when the clock was near", code)
				}
				m.stop()
			})
		})
	}
	if refused < 5 {
		t.Errorf("only %d kinds of writes", refused)
	}
}
