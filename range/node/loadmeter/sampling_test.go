package loadmeter

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A leader that is new says nothing of what an earlier leadership has found out.
func TestHintsEndWithLeadership(t *testing.T) {
	var m Meter
	m.Hints.Store(&Hints{Epoch{3, 7}, &clusterpb.SplitHints{OneKey: true}})
	for _, r := range []struct {
		report *clusterpb.PartitionReport
		want   bool
	}{
		{&clusterpb.PartitionReport{Generation: 3, Term: 7}, true},
		{&clusterpb.PartitionReport{Generation: 4, Term: 7}, false},
		{&clusterpb.PartitionReport{Generation: 3, Term: 8}, false},
	} {
		if m.Describe(r.report); r.report.Split.GetOneKey() != r.want {
			t.Errorf("generation %d, term %d: %v", r.report.Generation, r.report.Term, r.report.Split)
		}
	}
}

// What is sampled of a request is what it touches, and for how many it stands.
func TestSampledRequests(t *testing.T) {
	s := &Sampling{}
	s.spanWeight.Store(7)
	at := time.Unix(1000, 0)
	note := func(stands uint64, q *kvpb.Request) {
		s.NoteOne(q, stands, at)
	}
	for range 300 {
		note(1, &kvpb.Request{Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("m")}}})
		note(1, &kvpb.Request{Command: &kvpb.Request_BatchGet{
			BatchGet: &kvpb.BatchGetRequest{Keys: [][]byte{[]byte("c"), []byte("a")}}}})
		note(1, &kvpb.Request{Command: &kvpb.Request_Scan{
			Scan: &kvpb.ScanRequest{Start: []byte("x"), End: []byte("z")}}})
		note(1, &kvpb.Request{})
	}
	s.keys.Turn(everything, nil)
	for range 300 {
		note(2, &kvpb.Request{Command: &kvpb.Request_Scan{
			Scan: &kvpb.ScanRequest{Start: []byte("b"), End: []byte("y")}}})
		note(2, &kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("m")}}})
	}
	v := s.keys.Turn(everything, nil)
	// The scan has seven parts of eight.
	if v.Requests != 600 || v.Best == nil || string(v.HotKey) != "m" || v.Hot != 125 {
		t.Errorf("%+v, %+v", v, v.Best)
	}
}

var everything = keys.Span{Start: []byte("A")}

// BenchmarkNote measures what sampling adds to the way of 64 requests of one partition, none of
// which is sampled in most cases.
func BenchmarkNote(b *testing.B) {
	s := &Sampling{}
	s.Gap.Store(5000)
	requests := make([]config.Pending, 64)
	for i := range requests {
		requests[i].Request = &kvpb.Request{Command: &kvpb.Request_Get{
			Get: &kvpb.GetRequest{Key: fmt.Appendf(nil, "key%d", i)}}}
	}
	for b.Loop() {
		s.Note(requests)
	}
}
