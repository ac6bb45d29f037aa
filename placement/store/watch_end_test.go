package store

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/placement/store/command"
)

// A watcher that waits hears of the end of the watches.
func TestEndWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := one(t, nil)
		w, err := s.Watch([]byte("k"), s.Revision())
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := w.Next(t.Context())
			ended <- err
		}()
		synctest.Wait()
		s.EndWatches()
		if err := <-ended; !errors.Is(err, command.ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}
