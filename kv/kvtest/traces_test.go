package kvtest_test

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// collector receives spans by OTLP over gRPC.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span
}

func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (
	*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// provider exports spans to the collector.
func provider(t *testing.T, address string) *trace.TracerProvider {
	t.Helper()
	exporter, err := otlptracegrpc.New(t.Context(), otlptracegrpc.WithEndpoint(address),
		otlptracegrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	p := trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithBatcher(exporter))
	t.Cleanup(func() { _ = p.Shutdown(context.WithoutCancel(t.Context())) })
	return p
}

// TestTraceExplainsTransaction: the trace of one transaction over two partitions, as a collector has
// received it, explains 95 % of the transaction's time. What explains time are the requests: the
// parts of their time at the servers, and the rest of it, which is the network.
func TestTraceExplainsTransaction(t *testing.T) {
	received := &collector{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	servers, clients := provider(t, listener.Addr().String()), provider(t, listener.Addr().String())

	c := kvtest.Start(t, kvtest.Options{Nodes: 3, Latency: 5 * time.Millisecond,
		Configure: func(_ int, c *embedded.ServerConfig) { c.Traces = servers }})
	client := c.Client(t, kv.TracerProvider(clients))
	ctx := t.Context()
	ks := create(t, client, "fruit", kv.Hash(2))
	transact := func() {
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for _, key := range []string{"a", "b", "c", "d"} {
				if _, err := tx.GetForUpdate(ctx, ks, []byte(key)); err != nil && !errors.Is(err, kv.ErrNotFound) {
					return err
				}
				if err := tx.Put(ks, []byte(key), []byte("x")); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	transact() // the client finds the leaders
	transact()
	if err := clients.ForceFlush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := servers.ForceFlush(ctx); err != nil {
		t.Fatal(err)
	}
	received.mu.Lock()
	defer received.mu.Unlock()
	root := latest(received.spans, "tidemark transaction")
	if root == nil {
		t.Fatalf("of %d spans none is a transaction", len(received.spans))
	}
	byID := map[string]*tracepb.Span{}
	for _, s := range received.spans {
		byID[string(s.SpanId)] = s
	}
	partitions, parts := map[int64]bool{}, map[string]bool{}
	var requests []*tracepb.Span
	for _, s := range received.spans {
		parent := byID[string(s.ParentSpanId)]
		if string(s.TraceId) != string(root.TraceId) || parent == nil {
			continue
		}
		switch {
		case s.Kind == tracepb.Span_SPAN_KIND_CLIENT:
			requests = append(requests, s)
		case s.Kind == tracepb.Span_SPAN_KIND_SERVER:
			for _, a := range s.Attributes {
				if a.Key == "tidemark.partition" {
					partitions[a.Value.GetIntValue()] = true
				}
			}
			if parent.Kind != tracepb.Span_SPAN_KIND_CLIENT ||
				s.StartTimeUnixNano < parent.StartTimeUnixNano ||
				s.EndTimeUnixNano > parent.EndTimeUnixNano {
				t.Errorf("%s of the server lies outside of %s of the client", s.Name, parent.Name)
			}
		case parent.Kind == tracepb.Span_SPAN_KIND_SERVER:
			parts[s.Name] = true
		}
	}
	if len(partitions) != 2 {
		t.Errorf("the trace has requests of the partitions %v, want two", partitions)
	}
	for _, part := range []string{"evaluate", "replicate", "apply"} {
		if !parts[part] {
			t.Errorf("no request has the part %s: %v", part, parts)
		}
	}
	whole := root.EndTimeUnixNano - root.StartTimeUnixNano
	explained := covered(requests, root)
	t.Logf("%d requests explain %s of %s", len(requests), time.Duration(explained),
		time.Duration(whole))
	if float64(explained) < 0.95*float64(whole) {
		t.Errorf("%d requests explain %s of %s", len(requests), time.Duration(explained),
			time.Duration(whole))
	}
}

// latest returns the span of a name that began last; nil if there is none.
func latest(spans []*tracepb.Span, name string) (last *tracepb.Span) {
	for _, s := range spans {
		if s.Name == name && (last == nil || s.StartTimeUnixNano > last.StartTimeUnixNano) {
			last = s
		}
	}
	return last
}

// covered returns how much of a span's time others cover, in nanoseconds.
func covered(by []*tracepb.Span, of *tracepb.Span) (sum uint64) {
	slices.SortFunc(by, func(a, b *tracepb.Span) int {
		return cmp.Compare(a.StartTimeUnixNano, b.StartTimeUnixNano)
	})
	at := of.StartTimeUnixNano
	for _, s := range by {
		from, to := max(at, s.StartTimeUnixNano), min(s.EndTimeUnixNano, of.EndTimeUnixNano)
		if to > from {
			sum += to - from
			at = to
		}
	}
	return sum
}

// memory is an exporter that keeps the spans, and a provider that exports to it at once.
func memory() (*tracetest.InMemoryExporter, *trace.TracerProvider) {
	e := tracetest.NewInMemoryExporter()
	return e, trace.NewTracerProvider(trace.WithSampler(trace.AlwaysSample()), trace.WithSyncer(e))
}

// TestTransactionsOfBegin: a transaction of Begin has a span for each attempt, which ends with the
// attempt, and the errors of spans have no keys.
func TestTransactionsOfBegin(t *testing.T) {
	c := kvtest.Start(t, kvtest.Options{Nodes: 3})
	spans, p := memory()
	client := c.Client(t, kv.TracerProvider(p))
	ctx := t.Context()
	ks := create(t, client, "fruit", kv.Hash(1))
	spans.Reset()
	tx, err := client.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Put(ks, []byte("secret"), []byte("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Get(ctx, ks, []byte("secret2")); !errors.Is(err, kv.ErrNotFound) {
		t.Fatal(err)
	}
	if tx, err = tx.Again(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(ctx); !errors.Is(err, kv.ErrTransactionEnded) {
		t.Fatal(err)
	}
	transactions, within := 0, 0
	for _, s := range spans.GetSpans() {
		if strings.Contains(s.Status.Description, "secret") {
			t.Errorf("%s: %s", s.Name, s.Status.Description)
		}
		switch {
		case s.Name == "tidemark transaction":
			transactions++
		case s.Parent.IsValid():
			within++
		}
	}
	if transactions != 2 || within == 0 {
		t.Errorf("%d spans of transactions, %d within them", transactions, within)
	}
}

// TestCallsOfEtcdAreTraced: a call of the etcd API that a data node passes on has spans of both
// servers, and that of the data node is the parent. So does a call of kv/coord.
func TestCallsOfEtcdAreTraced(t *testing.T) {
	spans, p := memory()
	c := kvtest.Start(t, kvtest.Options{Nodes: 2, Cores: 1,
		Configure: func(_ int, c *embedded.ServerConfig) { c.Traces = p }})
	etcd, err := clientv3.New(clientv3.Config{Endpoints: c.Endpoints()[1:], DialOptions: []grpc.DialOption{
		grpc.WithContextDialer(c.Dialer("client"))}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	put := func(ctx context.Context) { // a member may still begin
		for {
			_, err := etcd.Put(ctx, "secret", "x")
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	put(ctx)
	spans.Reset()
	put(metadata.AppendToOutgoingContext(ctx, "traceparent",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	var parents []string
	for _, s := range spans.GetSpans() {
		if s.Name == "etcdserverpb.KV/Put" &&
			s.SpanContext.TraceID().String() == "0af7651916cd43dd8448eb211c80319c" {
			parents = append(parents, s.Parent.SpanID().String(), s.SpanContext.SpanID().String())
		}
	}
	// The span of the member ends first.
	if len(parents) != 4 || parents[2] != "b7ad6b7169203331" || parents[0] != parents[3] {
		t.Errorf("parents and spans: %v", parents)
	}

	// As JSON over HTTP, of the member itself.
	spans.Reset()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+c.Endpoints()[0]+"/v3/kv/range", strings.NewReader(`{"key": "c2VjcmV0"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("traceparent", "00-1af7651916cd43dd8448eb211c80319c-c7ad6b7169203331-01")
	dial := c.Dialer("client")
	answer, err := (&http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return dial(ctx, address)
		}}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if got := spans.GetSpans(); len(got) != 1 || got[0].Name != "etcdserverpb.KV/Range" ||
		got[0].Parent.SpanID().String() != "c7ad6b7169203331" {
		t.Errorf("%s as JSON has the spans %v", answer.Status, got)
	}

	own, clients := memory()
	co, err := coord.Connect(ctx, c.Endpoints(), coord.Dialer(c.Dialer("client")),
		coord.TracerProvider(clients))
	if err != nil {
		t.Fatal(err)
	}
	defer co.Close()
	spans.Reset()
	own.Reset()
	within, root := clients.Tracer("test").Start(ctx, "root")
	if _, err := co.Etcd().Get(within, "secret"); err != nil {
		t.Fatal(err)
	}
	root.End()
	calls := own.GetSpans()
	if len(calls) != 2 || calls[0].Name != "etcdserverpb.KV/Range" ||
		calls[0].Parent.SpanID() != root.SpanContext().SpanID() {
		t.Fatalf("spans of the client: %v", calls)
	}
	if servers := spans.GetSpans(); len(servers) != 1 ||
		servers[0].Parent.SpanID() != calls[0].SpanContext.SpanID() {
		t.Errorf("spans of servers: %v", servers)
	}
}
