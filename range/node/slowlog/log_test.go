package slowlog

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

func newLog(threshold time.Duration) *Log {
	return New(Config{Node: 3, Threshold: threshold, Metrics: NewMetrics(nil),
		KeyspaceOf: func(partition uint64) uint64 { return partition / 100 },
		Client:     func(uint64) (string, string) { return "10.0.0.1:99", "ann" }})
}

// answer tells a log of a put that has taken so long.
func answer(l *Log, key string, took time.Duration, failed bool) {
	p := &config.Pending{Client: 7, Arrived: time.Now().Add(-took), Request: &kvpb.Request{
		Partition: 512, Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte(key)}}}}
	p.Timing = timing.Start(p.Arrived)
	defer p.Timing.Release()
	response := &kvpb.Response{}
	if failed {
		response.Error = &kvpb.Error{Code: kvpb.ErrorCode_LOCKED}
	}
	l.Answered(p, command.Of(p.Request), response)
}

func all() *kvpb.SlowRequestsRequest { return &kvpb.SlowRequestsRequest{Keyspaces: []uint64{5}} }

func TestSlowRequestsAreKept(t *testing.T) {
	l := newLog(100 * time.Millisecond)
	answer(l, "quick", time.Millisecond, false)
	answer(l, "slow", time.Second, true)
	found := l.List(all())
	if len(found.Requests) != 1 || found.Count != 1 || found.Node != 3 ||
		found.ThresholdNanos != uint64(100*time.Millisecond) {
		t.Fatalf("found %v", found)
	}
	x := found.Requests[0]
	if x.Kind != "put" || string(x.Key) != "slow" || x.Keys != 1 || x.Keyspace != 5 ||
		x.Partition != 512 || !x.Failed || x.Error != kvpb.ErrorCode_LOCKED || x.User != "ann" ||
		x.ClientAddress != "10.0.0.1:99" || x.RequestBytes == 0 {
		t.Errorf("the entry is %v", x)
	}
	sum := uint64(0)
	for _, p := range x.Parts {
		sum += p.Nanos
	}
	if sum != x.TotalNanos || x.TotalNanos < uint64(time.Second) {
		t.Errorf("the parts take %d ns, and all takes %d ns", sum, x.TotalNanos)
	}
	if other := l.List(&kvpb.SlowRequestsRequest{Keyspaces: []uint64{4, 6}}); len(other.Requests) > 0 {
		t.Errorf("keyspaces 4 and 6 have %v", other.Requests)
	}
	if none := l.List(&kvpb.SlowRequestsRequest{}); len(none.Requests) > 0 {
		t.Errorf("no keyspace has %v", none.Requests)
	}
}

func TestThresholdOff(t *testing.T) {
	l := newLog(-1)
	answer(l, "slow", time.Hour, false)
	if found := l.List(all()); len(found.Requests) > 0 || found.Count > 0 || found.ThresholdNanos != 0 {
		t.Errorf("found %v", found)
	}
}

func TestQueries(t *testing.T) {
	l := newLog(time.Millisecond)
	now := time.Now()
	for i := range 10 {
		took := time.Duration(i+1) * time.Second
		l.keep(&kvpb.SlowRequest{Began: uint64(now.Add(-took).UnixNano()), TotalNanos: uint64(took),
			Keyspace: 5, Key: fmt.Append(nil, i)}, now)
	}
	q := all()
	q.LeastNanos = uint64(5500 * time.Millisecond)
	q.Max = 3
	found := l.List(q).Requests
	if len(found) != 3 || string(found[0].Key) != "5" || string(found[2].Key) != "7" {
		t.Errorf("of those above 5.5 s, the latest three are %v", found)
	}
	q = all()
	q.After = uint64(now.Add(time.Second).UnixNano())
	if found := l.List(q).Requests; len(found) > 0 {
		t.Errorf("%v were answered in the future", found)
	}
}

// Whatever comes, the log keeps a bounded number of entries of bounded sizes, and the slowest of them.
func TestBounded(t *testing.T) {
	l := newLog(time.Millisecond)
	now := time.Now()
	keep := func(at time.Time, total time.Duration) {
		l.keep(&kvpb.SlowRequest{Began: uint64(at.UnixNano()), TotalNanos: uint64(total), Keyspace: 5},
			now)
	}
	keep(now.Add(-2*slowestFor), 2*slowestFor)
	keep(now.Add(-slowestFor/2), time.Minute)
	for i := range 3 * keptNewest {
		keep(now.Add(time.Duration(i)), time.Duration(i%100)*time.Millisecond)
	}
	found := l.List(all()).Requests
	if len(found) > keptNewest+keptSlowest {
		t.Fatalf("%d entries are kept", len(found))
	}
	slowest, minute := uint64(0), false
	for i, x := range found {
		slowest = max(slowest, x.TotalNanos)
		minute = minute || x.TotalNanos == uint64(time.Minute)
		if i > 0 && x.Began > found[i-1].Began {
			t.Fatal("the latest do not come first")
		}
	}
	if !minute || slowest != uint64(time.Minute) {
		t.Errorf("the slowest of the last hour took a minute; that of the list %d ns", slowest)
	}
	answer(l, string(bytes.Repeat([]byte("k"), 1<<20)), time.Hour, false)
	if x := l.List(all()).Requests[len(l.List(all()).Requests)-1]; len(x.Key) != maxKeyBytes ||
		x.KeyBytes != 1<<20 || x.SizeVT() > 1<<10 {
		t.Errorf("an entry of %d bytes has a key of %d bytes", x.SizeVT(), len(x.Key))
	}
}

func TestRedacted(t *testing.T) {
	l := newLog(time.Millisecond)
	l.keep(&kvpb.SlowRequest{Began: 1, Keyspace: 5, Key: []byte("secret"), KeyBytes: 6,
		LockKey: []byte("secret")}, time.Now())
	q := all()
	q.Redact = true
	x := l.List(q).Requests[0]
	if len(x.Key)+len(x.LockKey) > 0 || x.KeyHash == 0 || x.KeyHash != x.LockKeyHash {
		t.Errorf("redacted, the entry is %v", x)
	}
	if x := l.List(all()).Requests[0]; string(x.Key) != "secret" || x.KeyHash != 0 {
		t.Errorf("the entry itself has become %v", x)
	}
}

func TestConcurrentUse(t *testing.T) {
	l := newLog(time.Nanosecond)
	var all8 sync.WaitGroup
	for range 8 {
		all8.Go(func() {
			for range 200 {
				answer(l, "k", time.Second, false)
				l.List(all())
			}
		})
	}
	all8.Wait()
	if found := l.List(all()); found.Count != 1600 {
		t.Errorf("%d requests were slow", found.Count)
	}
}

func TestPartsAreMeasured(t *testing.T) {
	registry := prometheus.NewRegistry()
	l := New(Config{Threshold: time.Hour, Metrics: NewMetrics(registry),
		KeyspaceOf: func(uint64) uint64 { return 5 }})
	for range 200 * sampledEvery {
		answer(l, "k", time.Second, false)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if h := m.GetHistogram(); h != nil && m.GetLabel()[0].GetValue() == "queue" &&
				(h.GetSampleCount() == 0 || h.GetSampleCount() > 1000) {
				t.Errorf("%d queues of 12,800 were measured", h.GetSampleCount())
			}
		}
	}
}
