package embedded

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// forgery is a request of the user reader that names the owner's transaction.
type forgery struct {
	what, place string
	// permitted: the user has the right to send it, and it is to do nothing to the transaction.
	permitted bool
	q         *kvpb.Request
}

// forgeries are all requests that name a transaction, in the name of one with locks at a1 and z1,
// which would commit at a timestamp.
func (f *forgedTest) forgeries(of *kvpb.Transaction, commit *kvpb.Timestamp) (all []forgery) {
	add := func(what, place string, permitted bool, q *kvpb.Request) {
		all = append(all, forgery{what, place, permitted, q})
	}
	elsewhere := proto.Clone(of).(*kvpb.Transaction)
	elsewhere.Keyspace, elsewhere.Anchor = f.keyspaces["theirs"], []byte("b1")
	unnamed := proto.Clone(of).(*kvpb.Transaction)
	unnamed.Anchor = []byte("z1")
	older := wire.ToTimestamp(hlc.Timestamp{Wall: wire.FromTimestamp(of.Begun).Wall - 1e9})
	aborted := &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED}
	committed := &kvpb.TransactionStatus{State: kvpb.TransactionState_COMMITTED, Timestamp: commit}

	for name, x := range map[string]*kvpb.Transaction{"": of, " at another key": unnamed,
		" at a key of its own": elsewhere} {
		// What is anchored at its own key it may send, and no partition but its own takes it.
		own := x == elsewhere
		for _, place := range []string{"a", "z"} {
			at := name + " to " + place
			add("commit"+at, place, own, endOf(x, commit, false))
			add("abort"+at, place, own, endOf(x, nil, false))
			add("abort on request"+at, place, false, endOf(x, nil, true))
			add("heartbeat"+at, place, own, &kvpb.Request{Command: &kvpb.Request_HeartbeatTransaction{
				HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{Transaction: x}}})
			for kind := range kvpb.PushRequest_Kind_name {
				add("push "+kvpb.PushRequest_Kind(kind).String()+at, place, false,
					pushOf(x, kvpb.PushRequest_Kind(kind), older))
			}
			for what, status := range map[string]*kvpb.TransactionStatus{"aborted": aborted,
				"committed": committed} {
				add("resolve as "+what+at, place, false, resolveOf(x, status, nil))
				add("resolve in a span as "+what+at, place, false,
					resolveOf(x, status, &kvpb.KeySpan{Start: []byte("a"), End: []byte("zz")}))
			}
			for what, p := range f.prepares(place) {
				p.Transaction = x
				add(what+at, place, false, &kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: p}})
			}
		}
	}
	// In its own keyspace it may do what it likes, under any id.
	add("prepare of its own", "theirs", true, &kvpb.Request{Command: &kvpb.Request_Prepare{
		Prepare: &kvpb.PrepareRequest{Transaction: elsewhere, Mutations: []*kvpb.Mutation{
			{Key: []byte("b1"), Value: []byte("mine")}}}}})
	add("push of its own", "theirs", true, pushOf(elsewhere, kvpb.PushRequest_ABORT, older))
	add("push of the owner's", "theirs", true, pushOf(of, kvpb.PushRequest_ABORT, older))
	add("abort of its own", "theirs", true, endOf(elsewhere, nil, true))
	add("abort of the owner's", "theirs", false, endOf(of, nil, true))
	add("resolve of the owner's", "theirs", true, resolveOf(of, aborted, nil))
	add("transactions", "a", false, &kvpb.Request{Command: &kvpb.Request_InspectTransactions{
		InspectTransactions: &kvpb.InspectTransactionsRequest{Transaction: of.Id}}})
	return append(all, f.forgedReads(of, commit)...)
}

func endOf(of *kvpb.Transaction, commit *kvpb.Timestamp, requested bool) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_EndTransaction{
		EndTransaction: &kvpb.EndTransactionRequest{Transaction: of, Commit: commit != nil,
			CommitTimestamp: commit, Requested: requested}}}
}

func pushOf(of *kvpb.Transaction, kind kvpb.PushRequest_Kind, begun *kvpb.Timestamp) *kvpb.Request {
	above := wire.FromTimestamp(of.Started)
	above.Wall += 1e9
	return &kvpb.Request{Command: &kvpb.Request_Push{Push: &kvpb.PushRequest{Pushee: of, Kind: kind,
		Seen: of.Started, Above: wire.ToTimestamp(above), PusherBegun: begun,
		Pusher: bytes.Repeat([]byte{6}, 16)}}}
}

func resolveOf(of *kvpb.Transaction, status *kvpb.TransactionStatus,
	within *kvpb.KeySpan) *kvpb.Request {
	return &kvpb.Request{Command: &kvpb.Request_Resolve{Resolve: &kvpb.ResolveRequest{
		Background: within != nil, Within: within, Resolutions: []*kvpb.Resolution{{Transaction: of.Id,
			Status: status, Keyspace: of.Keyspace, Anchor: of.Anchor}}}}}
}

// prepares are requests for locks of a partition's key, without a transaction.
func (f *forgedTest) prepares(place string) map[string]*kvpb.PrepareRequest {
	key := []byte(place + "1")
	of := func(kind kvpb.Mutation_Kind) []*kvpb.Mutation {
		return []*kvpb.Mutation{{Key: key, Kind: kind}}
	}
	return map[string]*kvpb.PrepareRequest{
		"unlock":    {Mutations: of(kvpb.Mutation_UNLOCK)},
		"write":     {Mutations: of(kvpb.Mutation_PUT)},
		"delete":    {Mutations: of(kvpb.Mutation_DELETE)},
		"lock":      {Mutations: of(kvpb.Mutation_LOCK), ReturnValues: true},
		"one phase": {Mutations: of(kvpb.Mutation_DELETE), OnePhase: &kvpb.OnePhase{}},
		"hold": {Volatile: true, ReturnValues: true,
			HoldSpans: []*kvpb.KeySpan{{Start: key, End: append(key, 0)}}},
	}
}

// forgedReads are what it may read, as if it were the owner's transaction, which passes by its own
// locks.
func (f *forgedTest) forgedReads(of *kvpb.Transaction, at *kvpb.Timestamp) (all []forgery) {
	context := &kvpb.ReadContext{Transaction: of.Id, Begun: of.Begun}
	for place, key := range map[string][]byte{"a": []byte("a1"), "z": []byte("z1")} {
		p := f.place[place]
		add := func(what string, q *kvpb.Request) {
			all = append(all, forgery{what + " at " + place, place, true, q})
		}
		add("get", &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: key, At: at,
			Context: context}}})
		add("batch get", &kvpb.Request{Command: &kvpb.Request_BatchGet{BatchGet: &kvpb.BatchGetRequest{
			Keys: [][]byte{key}, At: at, Context: context}}})
		add("scan", &kvpb.Request{Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{Start: key,
			End: append(key, 0), At: at, Context: context, MaxRows: 10}}})
		add("count", &kvpb.Request{Command: &kvpb.Request_Count{Count: &kvpb.CountRequest{Start: key,
			End: append(key, 0), At: at, Context: context}}})
		add("multi get", &kvpb.Request{Command: &kvpb.Request_MultiGet{MultiGet: &kvpb.MultiGetRequest{
			At: at, Context: context, Partitions: []*kvpb.PartitionKeys{{Partition: p.ID,
				Generation: p.Generation, Term: p.Term, Keys: [][]byte{key}}}}}})
		add("refresh", &kvpb.Request{Command: &kvpb.Request_Refresh{Refresh: &kvpb.RefreshRequest{
			Transaction: of.Id, Begun: of.Begun, To: at, Reads: &kvpb.ReadSet{At: of.Started,
				Keys: [][]byte{key}}}}})
	}
	return all
}
