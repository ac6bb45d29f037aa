package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/reading"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
)

// As many large answers are held as may be; others wait for one to be given back, but not for ever,
// and small ones do not wait.
func TestLargeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s := one(t, nil)
		for i := range 5 {
			put(t, s, fmt.Sprint("k", i), string(bytes.Repeat([]byte("v"), tables.LargeAnswerBytes/4)))
		}
		all := func(end string) *storepb.Txn {
			return writes(&storepb.Op{Op: &storepb.Op_Range{
				Range: &storepb.Range{Key: []byte("k"), RangeEnd: []byte(end)}}}).GetTxn()
		}
		large, small := all("l"), all("k3")
		held := make([]func(), reading.MaxLargeAnswers)
		for i := range held {
			var err error
			if _, held[i], err = s.ReadTxnAs(t.Context(), nil, large); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.ReadTxn(t.Context(), small); err != nil {
			t.Errorf("a small answer: %v", err)
		}
		ended, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := s.ReadTxn(ended, large); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that does not wait: %v", err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.ReadTxn(t.Context(), large)
			done <- err
		}()
		held[0]()
		if err := <-done; err != nil {
			t.Errorf("after one was given back: %v", err)
		}
		_, release, err := s.ReadTxnAs(t.Context(), nil, large)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReadTxn(t.Context(), large); !errors.Is(err, command.ErrOverloaded) {
			t.Errorf("one too many: %v", err)
		}
		for _, release := range append(held[1:], release) {
			release()
		}
		for i := range held {
			if _, held[i], err = s.ReadTxnAs(t.Context(), nil, large); err != nil {
				t.Errorf("answer %d after all were given back: %v", i, err)
			}
		}
		for _, release := range held {
			release()
		}
	})
}
