package rpc

import (
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Of the requests of a stream one in 64 is timed, however they are spread over messages; all that
// are timed are told of once, with their kinds, and nothing is kept of those that have a response.
func TestRequestsAreTimed(t *testing.T) {
	var told [RequestKinds]int
	timed := newTimedRequests(func(kind RequestKind, took time.Duration) {
		if took < 0 {
			t.Errorf("took %v", took)
		}
		told[kind]++
	}, 65)
	const all = 64 * 100
	commands := []*kvpb.Request{
		{Command: &kvpb.Request_Get{}}, {Command: &kvpb.Request_Increment{}},
		{Command: &kvpb.Request_Prepare{}}}
	id, picked := uint64(0), 0
	for sizes := []int{1, 3, 5, 64, 7, 2}; id < all; {
		n := min(sizes[int(id)%len(sizes)], all-int(id))
		if i, ok := timed.pick(n); ok {
			if i >= n {
				t.Fatalf("of %d requests the one numbered %d is picked", n, i)
			}
			r := commands[picked%len(commands)]
			r.Id = id + uint64(i)
			picked++
			timed.begin(r)
			timed.end(r.Id)
			timed.end(r.Id)
		}
		id += uint64(n)
	}
	if picked != 100 || told != [RequestKinds]int{34, 33, 33} || len(timed.begun) != 0 {
		t.Errorf("%d are timed, told of are %v, kept %d", picked, told, len(timed.begun))
	}
}

// Every request that changes something is named in kindOf, or else it would count as a read.
func TestEveryRequestHasAKind(t *testing.T) {
	reads := map[string]bool{"get": true, "batch_get": true, "scan": true, "count": true, "now": true,
		"merge_scan": true, "multi_get": true, "inspect_transactions": true, "changes": true,
		"slow_requests": true}
	cases := (&kvpb.Request{}).ProtoReflect().Descriptor().Oneofs().ByName("command").Fields()
	for i := range cases.Len() {
		field, q := cases.Get(i), &kvpb.Request{}
		m := q.ProtoReflect()
		m.Set(field, protoreflect.ValueOfMessage(m.NewField(field).Message()))
		if name := string(field.Name()); (kindOf(q) == RequestRead) != reads[name] {
			t.Errorf("%s is a %s: name it in kindOf, or among the reads of this test", name, kindOf(q))
		}
	}
}

// A server that is asked for it times requests of real streams, from end to end; requests that are
// refused for want of memory are not among them.
func TestStreamsAreTimed(t *testing.T) {
	var told, slow atomic.Int64
	server := NewBatchServer(BatchServerConfig{
		Handle: func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
			time.Sleep(time.Millisecond)
			echoAll(client, batch, reply)
		},
		Took: func(kind RequestKind, took time.Duration) {
			told.Add(1)
			if kind == RequestWrite && took >= time.Millisecond {
				slow.Add(1)
			}
		}})
	addr, stop := network{}.serve(t, "", func(s *Server) { s.ServeClients(server) })
	defer stop()
	conn := batchConn(t, network{}.dialer(t, ""), addr, nil)
	for range 3 * timedEvery {
		if _, err := conn.Do(background(), put("key", []byte("value"))); err != nil {
			t.Fatal(err)
		}
	}
	if told.Load() != 3 || slow.Load() != 3 {
		t.Errorf("%d are told of, of which %d took as long as they did", told.Load(), slow.Load())
	}
}

// BenchmarkTimed is what timing adds to each request.
func BenchmarkTimed(b *testing.B) {
	timed := newTimedRequests(func(RequestKind, time.Duration) {}, 1)
	r := get("key")
	for b.Loop() {
		if _, ok := timed.pick(1); ok {
			timed.begin(r)
			timed.end(r.Id)
		}
	}
}
