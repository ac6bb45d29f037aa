package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// An error says in its fields where it happened, which timestamp was refused and what it lies
// beyond; the text has the time of each.
func TestErrorsCarryTheirTimestamps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		at := hlc.FromTime(time.Now().Add(time.Hour))
		_, err = ks.Get(ctx, []byte("a"), kv.At(at))
		var e *kv.Error
		if !errors.As(err, &e) || !errors.Is(err, kv.ErrTimestampInFuture) {
			t.Fatal(err)
		}
		if e.Timestamp != at || e.Bound.IsZero() || !e.Bound.Less(at) || e.Partition == 0 ||
			e.Node == 0 {
			t.Errorf("%+v", e)
		}
		if e.Advice != "read an earlier moment" {
			t.Errorf("advice %q", e.Advice)
		}
		if want := at.String() + " is " + at.Time().Format(time.RFC3339); !strings.Contains(
			err.Error(), strings.TrimSuffix(want, "Z")) {
			t.Errorf("%v: want %q in it", err, want)
		}
	})
}
