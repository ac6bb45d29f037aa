package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// History is kept for a consumer against real servers: versions that the GC window would give free
// can be read at its position, until it has moved on, is deleted, or is behind by more than its
// keep.
func TestHistoryIsKeptForConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		c := kvtest.Start(t, kvtest.Options{Configure: func(_ int, sc *embedded.ServerConfig) {
			sc.GCInterval = time.Second
		}})
		client := c.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(1), kv.GCWindow(2*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		put := func(value string) (at kv.Timestamp) {
			t.Helper()
			if at, err = ks.Put(ctx, []byte("key"), []byte(value)); err != nil {
				t.Fatal(err)
			}
			return at
		}
		// readable reads the past, if it is there still.
		readable := func(at kv.Timestamp) bool {
			t.Helper()
			_, err := ks.Get(ctx, []byte("key"), kv.At(at))
			if err != nil && !errors.Is(err, kv.ErrTimestampTooOld) {
				t.Fatal(err)
			}
			return err == nil
		}
		// age lets a minute go by, in which versions become garbage.
		age := func() {
			for i := range 60 {
				put(fmt.Sprint(i))
				time.Sleep(time.Second) // virtual
			}
		}
		first := put("first")
		info, err := ks.SetConsumer(ctx, "search", first, kv.KeepHistory(10*time.Minute))
		if err != nil || info.Keyspace != "k" || info.Name != "search" || info.Position != first ||
			info.Keep != 10*time.Minute || info.TooOld || info.Lag > time.Second {
			t.Fatalf("%+v, %v", info, err)
		}
		age()
		if !readable(first) {
			t.Error("the consumer's position cannot be read")
		}
		second := put("second")
		if _, err := ks.SetConsumer(ctx, "search", second); err != nil {
			t.Fatal(err)
		}
		age()
		if readable(first) || !readable(second) {
			t.Errorf("it has moved on; readable are the first position: %v, the second: %v",
				readable(first), readable(second))
		}
		if existed, err := ks.DeleteConsumer(ctx, "search"); err != nil || !existed {
			t.Errorf("%v, %v", existed, err)
		}
		age()
		if readable(second) {
			t.Error("there is no consumer, and history is kept")
		}
		third := put("third")
		if _, err := ks.SetConsumer(ctx, "slow", third, kv.KeepHistory(5*time.Minute)); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			age()
		}
		if !readable(third) {
			t.Error("within its keep its position cannot be read")
		}
		for range 10 { // the core waits as long again, to be sure of the time
			age()
		}
		if readable(third) {
			t.Error("beyond its keep history is kept")
		}
		if info, err = ks.Consumer(ctx, "slow"); err != nil || !info.TooOld {
			t.Errorf("%+v, %v", info, err)
		}
		if _, err = ks.SetConsumer(ctx, "slow", client.Timestamp()); !errors.Is(err,
			kv.ErrTimestampTooOld) || !strings.Contains(err.Error(), "reset") {
			t.Errorf("it goes on: %v", err)
		}
		if info, err = ks.SetConsumer(ctx, "slow", put("now"), kv.ResetPosition()); err != nil ||
			info.TooOld {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

func TestConsumerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		other, err := client.CreateKeyspace(ctx, "l", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		now := hlc.FromTime(time.Now())
		set := func(ks *kv.Keyspace, name string, at kv.Timestamp, options ...kv.ConsumerOption) error {
			_, err := ks.SetConsumer(ctx, name, at, options...)
			return err
		}
		for _, name := range []string{"b", "a", "c"} {
			if err := errors.Join(set(ks, name, now), set(other, name, now)); err != nil {
				t.Fatal(err)
			}
		}
		_, notFound := ks.Consumer(ctx, "nobody")
		_, noKeyspace := client.Keyspace("nowhere").Consumer(ctx, "a")
		for name, x := range map[string]struct{ err, want error }{
			"no name":   {set(ks, "", now), kv.ErrInvalidArgument},
			"long name": {set(ks, strings.Repeat("x", 257), now), kv.ErrInvalidArgument},
			"future":    {set(ks, "a", now.Add(time.Hour)), kv.ErrInvalidArgument},
			"backwards": {set(ks, "a", now.Add(-time.Hour)), kv.ErrInvalidArgument},
			"keep of a year": {set(ks, "a", now, kv.KeepHistory(365*24*time.Hour)),
				kv.ErrInvalidArgument},
			"no keep":          {set(ks, "a", now, kv.KeepHistory(-time.Hour)), kv.ErrInvalidArgument},
			"ancient":          {set(ks, "x", now.Add(-25*time.Hour)), kv.ErrTimestampTooOld},
			"unknown":          {notFound, kv.ErrConsumerNotFound},
			"unknown keyspace": {noKeyspace, kv.ErrKeyspaceNotFound},
			"set in unknown keyspace": {set(client.Keyspace("nowhere"), "a", now),
				kv.ErrKeyspaceNotFound},
			"keyspace without a name": {set(client.Keyspace(""), "a", now), kv.ErrInvalidArgument},
		} {
			if !errors.Is(x.err, x.want) {
				t.Errorf("%s: %v, want %v", name, x.err, x.want)
			}
		}
		all, err := client.Consumers(ctx, "")
		if err != nil || len(all) != 6 || all[0].Keyspace != "k" || all[0].Name != "a" ||
			all[5].Keyspace != "l" || all[5].Name != "c" {
			t.Errorf("%+v, %v", all, err)
		}
		if some, err := ks.Consumers(ctx); err != nil || len(some) != 3 {
			t.Errorf("%+v, %v", some, err)
		}
		if existed, err := ks.DeleteConsumer(ctx, "nobody"); existed || err != nil {
			t.Errorf("delete of none: %v, %v", existed, err)
		}
		if err := client.DropKeyspace(ctx, "l"); err != nil {
			t.Fatal(err)
		}
		if err := set(other, "a", now); !errors.Is(err, kv.ErrKeyspaceNotFound) {
			t.Errorf("in a dropped keyspace: %v", err)
		}
		if all, err := client.Consumers(ctx, ""); err != nil || len(all) != 3 {
			t.Errorf("after a drop: %+v, %v", all, err)
		}
	})
}
