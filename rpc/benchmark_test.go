package rpc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// BenchmarkBatch measures puts of 256 bytes through a client's stream to an echo handler over TCP
// and back. "inline" replies within Handle, as a read from memory would; "async" from another
// goroutine, as a replicated write does. cpu-us/op is the processor time of both sides together.
func BenchmarkBatch(b *testing.B) {
	for _, mode := range []string{"inline", "async"} {
		for _, callers := range []int{1, 2, 8, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", mode, callers), func(b *testing.B) {
				handle := echoAll
				if mode == "async" {
					work := make(chan func(), 1024)
					defer close(work)
					go func() {
						for f := range work {
							f()
						}
					}()
					handle = func(client uint64, batch []*kvpb.Request, reply func(*kvpb.Response)) {
						work <- func() { echoAll(client, batch, reply) }
					}
				}
				var timed atomic.Int64
				server := NewBatchServer(BatchServerConfig{Handle: handle,
					Took: func(RequestKind, time.Duration) { timed.Add(1) }})
				addr, stop := network{}.serve(b, "", func(s *Server) { s.ServeClients(server) })
				defer stop()
				conn := batchConn(b, network{}.dialer(b, ""), addr, nil)
				value := make([]byte, 256)
				measure(b, callers, func() {
					if _, err := conn.Do(background(), put("0123456789", value)); err != nil {
						b.Error(err)
					}
				})
				b.ReportMetric(float64(conn.Stats().Messages), "messages")
			})
		}
	}
}

// BenchmarkUnary is the same echo as one gRPC call for each request: what BatchConn is there to
// beat.
func BenchmarkUnary(b *testing.B) {
	for _, callers := range []int{1, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			addr, stop := network{}.serve(b, "", func(s *Server) { s.RegisterService(&unaryEcho, nil) })
			defer stop()
			conn := mustConn(b, network{}.dialer(b, ""), addr)
			value := make([]byte, 256)
			measure(b, callers, func() {
				if err := conn.Invoke(background(), "/test.Echo/Echo", put("0123456789", value),
					new(kvpb.Response)); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

var unaryEcho = grpc.ServiceDesc{ServiceName: "test.Echo",
	Methods: []grpc.MethodDesc{{MethodName: "Echo",
		Handler: func(_ any, _ context.Context, decode func(any) error,
			_ grpc.UnaryServerInterceptor) (any, error) {
			r := new(kvpb.Request)
			if err := decode(r); err != nil {
				return nil, err
			}
			return echo(r), nil
		}}}}

// BenchmarkDecode measures what a server does with the bytes of a message: of a small get, and of a
// large transaction.
func BenchmarkDecode(b *testing.B) {
	large := &kvpb.PrepareRequest{}
	for range 20_000 {
		large.Mutations = append(large.Mutations,
			&kvpb.Mutation{Key: []byte("0123456789"), Value: make([]byte, 100)})
	}
	for name, r := range map[string]*kvpb.Request{"get": get("0123456789"),
		"transaction": {Command: &kvpb.Request_Prepare{Prepare: large}}} {
		b.Run(name, func(b *testing.B) {
			message, err := proto.Marshal(&kvpb.BatchRequest{Requests: []*kvpb.Request{r}})
			if err != nil {
				b.Fatal(err)
			}
			data := mem.BufferSlice{mem.SliceBuffer(message)}
			b.ReportAllocs()
			for b.Loop() {
				if err := (wire.Codec{}).Unmarshal(data, new(kvpb.BatchRequest)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// measure runs b.N operations by so many callers.
func measure(b *testing.B, callers int, operation func()) {
	operation() // connects
	b.ReportAllocs()
	b.ResetTimer()
	start, cpu := time.Now(), cpuTime()
	var group sync.WaitGroup
	for i := range callers {
		n := b.N / callers
		if i < b.N%callers {
			n++
		}
		group.Go(func() {
			for range n {
				operation()
			}
		})
	}
	group.Wait()
	report(b, start, cpu)
}

func report(b *testing.B, start time.Time, cpu time.Duration) {
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "ops/s")
	b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/1000/float64(b.N), "cpu-us/op")
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
