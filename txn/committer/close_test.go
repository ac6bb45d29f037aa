package committer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// Nothing is waited for if nothing is left to be done, whether transactions with locks have ended
// or not.
func TestCloseTakesNoTime(t *testing.T) {
	for name, ends := range map[string]func(ctx context.Context, x *Transaction) error{
		"one phase": func(ctx context.Context, x *Transaction) error {
			_, err := x.Commit(ctx, []Write{put(k1("x"), "1")}, Reads{}, false)
			return err
		},
		"two phases": func(ctx context.Context, x *Transaction) error {
			_, err := x.Commit(ctx, []Write{put(k1("x"), "1"), put(k2("a1"), "1")}, Reads{}, false)
			return err
		},
		"aborted": func(_ context.Context, x *Transaction) error { x.Abort(); return nil },
		"open":    func(context.Context, *Transaction) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, ctx context.Context, c *Committer, s *fake) {
				x, late := begin(t, ctx, c), begin(t, ctx, c)
				if _, err := x.Lock(ctx, hlc.Timestamp{}, false, k1("x")); err != nil {
					t.Fatal(err)
				}
				if err := ends(ctx, x); err != nil {
					t.Fatal(err)
				}
				s.locksLeft(c)
				began := time.Now()
				c.Close()
				if took := time.Since(began); took != 0 {
					t.Errorf("Close took %s", took)
				}
				if _, err := late.Lock(ctx, hlc.Timestamp{}, false, k1("y")); !errors.Is(err, ErrClosed) {
					t.Errorf("locked after Close: %v", err)
				}
			})
		})
	}
}
