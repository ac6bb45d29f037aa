package rpc

import (
	"fmt"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BenchmarkTLS measures in processor time what requests cost on their way, plain and with mutual
// TLS: client and server in one process, over loopback, with a server that knows the answers. A get
// brings a value of 256 bytes; a put takes one, and is answered by another goroutine, as when it
// was replicated; a page of a scan brings 100 such rows. requests/message and answers/message say
// how many share one. What is possible at all is measured by package transport (BenchmarkCeiling).
//
// Garbage is collected as seldom as in a server.
func BenchmarkTLS(b *testing.B) {
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(400<<20)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	var files *authn.TLSFiles
	for _, n := range networks(b) {
		if n.mem == nil && n.tls != nil {
			files = n.tls
		}
	}
	value := make([]byte, 256)
	for _, operation := range []struct {
		name    string
		request func() *kvpb.Request
	}{
		{"get", func() *kvpb.Request { return get("0123456789") }},
		{"put", func() *kvpb.Request { return put("0123456789", value) }},
		{"page", func() *kvpb.Request {
			return &kvpb.Request{Partition: 100, Command: &kvpb.Request_Scan{
				Scan: &kvpb.ScanRequest{Start: []byte("0123456789"), MaxRows: 100}}}
		}},
	} {
		for _, callers := range []int{1, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d/plain", operation.name, callers), func(b *testing.B) {
				benchmarkTLS(b, network{}, callers, operation.request)
			})
			b.Run(fmt.Sprintf("%s/callers=%d/TLS", operation.name, callers), func(b *testing.B) {
				benchmarkTLS(b, network{tls: files}, callers, operation.request)
			})
		}
	}
}

func benchmarkTLS(b *testing.B, n network, callers int, request func() *kvpb.Request) {
	replicated := make(chan func(), 1024)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for reply := range replicated {
			reply()
		}
	}()
	defer func() { close(replicated); <-ended }()
	answers := newReadyAnswers()
	server := NewBatchServer(BatchServerConfig{
		Take: func(_ uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) Work {
			if batch[0].GetPut() == nil {
				return &readyWork{answers, batch, reply}
			}
			batch = slices.Clone(batch)
			replicated <- func() { echoAll(0, batch, reply) }
			return nil
		},
	})
	addr, stop := n.serve(b, "", func(s *Server) { s.ServeClients(server) })
	defer stop()
	conn := batchConn(b, n.dialer(b, ""), addr, nil)
	defer conn.Close()
	measure(b, callers, func() {
		if _, err := conn.Do(background(), request()); err != nil {
			b.Error(err)
		}
	})
	b.ReportMetric(float64(b.N)/float64(conn.Stats().Messages), "requests/message")
	server.open.mu.Lock()
	defer server.open.mu.Unlock()
	for ss := range server.open.all {
		b.ReportMetric(float64(b.N)/float64(ss.out.Messages()), "answers/message")
	}
}

// readyAnswers are the answers to reads.
type readyAnswers struct{ value, rows []byte }

func newReadyAnswers() *readyAnswers {
	a := &readyAnswers{value: make([]byte, 256)}
	for i := range 100 {
		a.rows = wire.AppendRow(a.rows, fmt.Appendf(nil, "key-%08d", i), a.value,
			hlc.Timestamp{Wall: 1 << 60}, 0)
	}
	return a
}

// readyWork answers the reads of a message.
type readyWork struct {
	answers *readyAnswers
	batch   []*kvpb.Request
	reply   func(*kvpb.Response)
}

// Run implements Work.
func (w *readyWork) Run() {
	for _, r := range w.batch {
		response := &kvpb.Response{Id: r.Id, Now: &kvpb.Timestamp{Wall: 1 << 60}}
		if r.GetScan() != nil {
			response.Result = &kvpb.Response_Scan{Scan: &kvpb.ScanResponse{Rows: w.answers.rows,
				At: &kvpb.Timestamp{Wall: 1 << 60}}}
		} else {
			response.Result = &kvpb.Response_Get{Get: &kvpb.GetResponse{Found: true,
				Value: w.answers.value, Version: &kvpb.Timestamp{Wall: 1 << 60}}}
		}
		w.reply(response)
	}
}

// Done implements Work.
func (w *readyWork) Done() {}
