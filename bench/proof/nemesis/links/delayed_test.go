package links

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLineDelaysAndKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newLine()
		begin := time.Now()
		type arrival struct {
			what string
			at   time.Duration
		}
		var arrived []arrival
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = l.deliver(ctx, func(data []byte) error {
				arrived = append(arrived, arrival{string(data), time.Since(begin)})
				return nil
			})
		}()
		l.offer(Shape{Delay: 100 * time.Millisecond}, []byte("slow"))
		time.Sleep(10 * time.Millisecond)
		l.offer(Shape{Delay: time.Millisecond}, []byte("behind it"))
		time.Sleep(time.Second)
		l.offer(Shape{}, []byte("at once"))
		synctest.Wait()
		cancel()
		<-done
		want := []arrival{{"slow", 100 * time.Millisecond}, {"behind it", 100 * time.Millisecond},
			{"at once", 1010 * time.Millisecond}}
		if len(arrived) != len(want) {
			t.Fatalf("arrived: %v", arrived)
		}
		for i := range want {
			if arrived[i] != want[i] {
				t.Errorf("arrived %v, want %v", arrived[i], want[i])
			}
		}
	})
}

func TestLineIsBounded(t *testing.T) {
	l := newLine()
	for i := range lineLength {
		if !l.offer(Shape{}, nil) {
			t.Fatalf("full after %d", i)
		}
	}
	if l.offer(Shape{}, nil) {
		t.Error("the line has no end")
	}
}

func TestJitterIsWithinBounds(t *testing.T) {
	l, now := newLine(), time.Now()
	for range 100 {
		d := l.due(now, Shape{Delay: 5 * time.Millisecond, Jitter: 10 * time.Millisecond}).Sub(now)
		if d < 5*time.Millisecond || d >= 15*time.Millisecond {
			t.Fatalf("%v later", d)
		}
	}
}

func TestAlarmRingsAgain(t *testing.T) {
	var a alarm
	defer a.close()
	for range 3 {
		began := time.Now()
		a.wait(100 * time.Microsecond)
		if took := time.Since(began); took < 100*time.Microsecond {
			t.Fatalf("it rang after %v", took)
		}
	}
}

// BenchmarkShortDelay tells by how much a delay of 250 µs is longer than that.
func BenchmarkShortDelay(b *testing.B) {
	const delay = 250 * time.Microsecond
	l, arrived := newLine(), make(chan time.Time)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = l.deliver(ctx, func([]byte) error { arrived <- time.Now(); return nil })
	}()
	var late time.Duration
	for b.Loop() {
		began := time.Now()
		l.offer(Shape{Delay: delay}, nil)
		late += (<-arrived).Sub(began) - delay
	}
	cancel()
	<-done
	b.ReportMetric(float64(late.Nanoseconds())/float64(b.N), "late-ns/op")
}
