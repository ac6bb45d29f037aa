package node

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestMergeOfOneIDWithTwoAnchors: two partitions have locks under one id, of transactions with
// different anchors; one of them was forged. When they have merged, what is decided at one anchor
// ends no lock of the other one, whichever partition had it.
func TestMergeOfOneIDWithTwoAnchors(t *testing.T) {
	for _, forged := range []string{"k050", "k150"} {
		t.Run("forged at "+forged, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { mergeOfOneID(t, forged) })
		})
	}
}

func mergeOfOneID(t *testing.T, forged string) {
	s := newMergeTest(t, 3)
	owned := map[string]string{"k050": "k150", "k150": "k050"}[forged]
	id := bytes.Repeat([]byte{7}, 16)
	node, _ := s.leads(s.right)
	begun := s.c.nodes[node].config.Clock.Now()
	ask := func(key string, command func(q *kvpb.Request)) *kvpb.Response {
		t.Helper()
		r := s.do(key, func(p *clusterpb.Partition, term uint64) *kvpb.Request {
			q := put(p, term, key, "")
			q.Session = wire.ToTimestamp(begun)
			command(q)
			return q
		})
		return r
	}
	var prepared hlc.Timestamp
	for _, key := range []string{forged, owned} {
		r := ask(key, func(q *kvpb.Request) {
			q.Command = &kvpb.Request_Prepare{Prepare: &kvpb.PrepareRequest{
				Transaction: &kvpb.Transaction{Id: id, Anchor: []byte(key), Keyspace: 7,
					Begun: wire.ToTimestamp(begun), Started: wire.ToTimestamp(begun)},
				Mutations: []*kvpb.Mutation{{Kind: kvpb.Mutation_PUT, Key: []byte(key),
					Value: []byte("after")}}}}
		})
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		prepared = hlc.Max(prepared, wire.FromTimestamp(r.GetPrepare().GetPrepared()))
	}
	s.merge()
	intents := func(n int) func() bool {
		return func() bool {
			for id := range s.c.nodes {
				if s.hosted(id, s.left).Replica.Intents() != n {
					return false
				}
			}
			return true
		}
	}
	s.c.await("all have the locks of both", time.Minute, intents(2))
	resolve := func(anchor string, status *kvpb.TransactionStatus) uint64 {
		t.Helper()
		r := ask(anchor, func(q *kvpb.Request) {
			q.Command = &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
				Resolutions: []*kvpb.Resolution{{Transaction: id, Status: status, Keyspace: 7,
					Anchor: []byte(anchor)}}}}
		})
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		return r.GetResolve().Resolved
	}
	if n := resolve(forged, &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED}); n != 1 {
		t.Fatalf("the forger's decision ends %d locks", n)
	}
	s.c.await("the owner's lock stands everywhere", time.Minute, intents(1))
	if n := resolve(owned, &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED,
		Timestamp: wire.ToTimestamp(prepared)}); n != 1 {
		t.Fatalf("the owner's decision ends %d locks", n)
	}
	for key, want := range map[string]string{owned: "after", forged: "before"} {
		r := s.do(key, func(p *clusterpb.Partition, term uint64) *kvpb.Request {
			return get(p, term, key)
		})
		if got := string(r.GetGet().GetValue()); r.Error != nil || got != want {
			t.Errorf("%s has the value %q, want %q: %v", key, got, want, r.Error)
		}
	}
}
