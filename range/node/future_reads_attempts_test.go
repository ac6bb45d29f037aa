package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Two attempts of one Delete: the first names a timestamp of the future, the second, by a newer
// stream, comes when the hybrid clock has got there, and is answered that there is nothing. What
// another client writes then has to stay.
func TestAttemptFromTheFutureAfterItsRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		m := c.nodes[1]
		c.awaitServing(m)
		p := c.createHash(7, 1)[0]
		c.mustPut(p, "warm", "x")
		time.Sleep(2 * time.Second)
		_, term := c.believedLeader(p.Id)
		clock := m.config.Clock
		session := hlc.Timestamp{
			Wall: clock.Physical() + int64(clock.MaxAhead()) + int64(clock.MaxAhead()/2),
		}
		answers := make(chan *kvpb.Response, 8)
		send := func(client, id, sequence uint64, q *kvpb.Request) {
			q.Id, q.Sequence, q.Partition, q.Generation, q.Term = id, sequence, p.Id, p.Generation, term
			handle(m.Node, client, []*kvpb.Request{q}, func(r *kvpb.Response) { answers <- r })
		}
		del := func() *kvpb.Request {
			return &kvpb.Request{Session: wire.ToTimestamp(session),
				Command: &kvpb.Request_Delete{Delete: &kvpb.DeleteRequest{Key: []byte("k")}}}
		}
		send(77, 1, 100, del()) // first attempt
		if r := <-answers; r.GetError().GetCode() != kvpb.ErrorCode_OVERLOADED {
			t.Fatalf("a write from the future was answered %v", r)
		}
		// A follower's replica of the partition that gave the session's timestamp applies it:
		// Replica.observe.
		if err := clock.Update(session.Next()); err != nil {
			t.Fatal(err)
		}
		send(77, 2, 100, del()) // the retry, by a newer stream
		if r := <-answers; r.GetDelete() == nil || r.GetDelete().Existed {
			t.Fatalf("the retry was answered %v", r)
		}
		send(
			78,
			3,
			5,
			&kvpb.Request{
				Session: wire.ToTimestamp(hlc.Timestamp{Wall: clock.Physical()}),
				Command: &kvpb.Request_Put{
					Put: &kvpb.PutRequest{Key: []byte("k"), Value: []byte("v")},
				},
			},
		)
		if r := <-answers; r.GetPut() == nil {
			t.Fatalf("the put was answered %v", r)
		}
		time.Sleep(time.Second)
		c.mustGet(p, "k", "v")
		m.stop()
	})
}
