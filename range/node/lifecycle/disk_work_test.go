package lifecycle

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// TestDiskWork: what hangs is given up, is alone for as long as it lasts, and is waited for before
// anything else.
func TestDiskWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks sync.WaitGroup
		w := diskWork{tasks: &tasks, hangs: hosted.NewMetrics(nil).Counter("hangs", "")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := w.do(ctx, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		other := errors.New("other")
		if err := w.do(ctx, func() error { return other }); err != other {
			t.Fatal(err)
		}
		disk, ended := make(chan struct{}), false
		began := time.Now()
		if err := w.do(ctx, func() error { <-disk; ended = true; return nil }); !errors.Is(err,
			errLogHangs) || time.Since(began) != diskPatience {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		ran := false
		if err := w.do(ctx, func() error { ran = true; return nil }); !errors.Is(err,
			errLogHangs) || ran {
			t.Fatalf("%v, began beside the other: %t", err, ran)
		}
		time.AfterFunc(10*time.Second, func() { close(disk) })
		if err := w.do(ctx, func() error { ran = ended; return nil }); err != nil || !ran {
			t.Fatalf("%v, began after the other: %t", err, ran)
		}
		disk = make(chan struct{})
		time.AfterFunc(time.Second, cancel)
		if err := w.do(ctx, func() error { <-disk; return nil }); !errors.Is(err,
			context.Canceled) {
			t.Fatal(err)
		}
		close(disk)
		tasks.Wait()
	})
}
