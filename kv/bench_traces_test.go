package kv

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// BenchmarkTraces measures what traces cost a client: without a provider, with one that samples
// nothing, and with one that samples a hundredth. The three take turns, so that what the machine does
// meanwhile meets all of them, and the figures are medians of their turns. The node answers at once:
// with a real one, calls take longer, and the same cost is a smaller part.
func BenchmarkTraces(b *testing.B) {
	const turns, calls, callers = 41, 20_000, 64
	provider := func(part float64) Option {
		p := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(part)),
			sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		b.Cleanup(func() { _ = p.Shutdown(context.Background()) })
		return TracerProvider(p)
	}
	kinds := []struct {
		name    string
		options []Option
	}{{"off", nil}, {"none", []Option{provider(0)}}, {"hundredth", []Option{provider(0.01)}}}
	keyspaces := make([]*Keyspace, len(kinds))
	for i, kind := range kinds {
		keyspaces[i] = idleNode(b, kind.options...).Keyspace("k")
	}
	turn := func(ks *Keyspace) time.Duration {
		began := time.Now()
		var calling sync.WaitGroup
		for i := range callers {
			calling.Go(func() {
				for range calls / callers {
					if err := get(b.Context(), ks, []byte{'k', byte(i)}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		calling.Wait()
		return time.Since(began) / calls
	}
	for b.Loop() {
		took := make([][]time.Duration, len(kinds))
		for n := range turns {
			for i := range kinds {
				at := (i + n) % len(kinds)
				took[at] = append(took[at], turn(keyspaces[at]))
			}
		}
		for i, kind := range kinds {
			slices.Sort(took[i])
			b.ReportMetric(float64(took[i][turns/2].Nanoseconds()), kind.name+"-ns/call")
		}
	}
}
