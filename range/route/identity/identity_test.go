package identity

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/range/route/lifetime"
)

// A login that was refused is not tried again back to back, and one that was not answered is.
func TestRefusedLoginIsNotRepeatedAtOnce(t *testing.T) {
	for _, c := range []struct {
		code codes.Code
		want int
	}{{codes.InvalidArgument, 1}, {codes.Unavailable, 50}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, life := t.Context(), lifetime.New()
			calls, refusal := 0, status.Error(c.code, "no")
			i := New(Config{Life: life, Logger: slog.New(slog.DiscardHandler), Show: func(string) {},
				Source: func(context.Context) (string, error) {
					calls++
					return "token", refusal
				}})
			for range 50 {
				if err := i.Renew(ctx, 0); !errors.Is(err, refusal) {
					t.Fatal(err)
				}
			}
			if calls != c.want {
				t.Errorf("%v: %d calls, want %d", c.code, calls, c.want)
			}
			time.Sleep(tokenAgain)
			refusal = nil
			if err := i.Renew(ctx, 0); err != nil {
				t.Errorf("%v: when it is accepted: %v", c.code, err)
			}
			life.End()
			life.Wait()
		})
	}
}
