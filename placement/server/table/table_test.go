package table

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A receiver that takes nothing for too long is cut off. One that takes each update in time is not,
// however long the stream lasts and however little there is for it.
func TestReceivers(t *testing.T) {
	ended := errors.New("ended")
	for what, c := range map[string]struct {
		takes time.Duration
		cut   bool
	}{
		"one that reads at once":  {0, false},
		"one that reads slowly":   {SendTimeout - 1, false},
		"one that reads too late": {10 * SendTimeout, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cut := false
			err := SendTo(ctx, func() { cut = true }, func(*clusterpb.TableUpdate) error {
				select {
				case <-time.After(c.takes): // virtual
				case <-ctx.Done():
				}
				return nil
			}, func(_ context.Context, send func(*clusterpb.TableUpdate) error) error {
				for range 5 {
					time.Sleep(time.Hour) // virtual: nothing changes
					if err := send(&clusterpb.TableUpdate{}); err != nil {
						return err
					}
				}
				return ended
			})
			if cut != c.cut || cut && status.Code(err) != codes.ResourceExhausted ||
				!cut && !errors.Is(err, ended) {
				t.Errorf("%s: %v, cut off: %v", what, err, cut)
			}
			cancel()
			synctest.Wait()
			time.Sleep(10 * time.Hour) // virtual: what still runs ends
		})
	}
}
