package faults

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
)

// everyKey reads every key, many at once, and reports keys with wrong values.
func everyKey(ctx context.Context, store *Store, want map[string]string) error {
	const readers = 32
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	keys := make(chan string)
	go func() {
		defer close(keys)
		for key := range want {
			select {
			case keys <- key:
			case <-ctx.Done():
				return
			}
		}
	}()
	var (
		group sync.WaitGroup
		read  atomic.Int64
		wrong collected
	)
	for range readers {
		group.Go(func() {
			for key := range keys {
				found, err := store.Get(ctx, key)
				switch {
				case err != nil:
					wrong.add(fmt.Errorf("read %s: %w", key, err))
				case found != history.Value(want[key]):
					wrong.add(fmt.Errorf("%s holds %v and should hold %q", key, abbreviate(found),
						abbreviateText(want[key])))
				}
				read.Add(1)
			}
		})
	}
	group.Wait()
	if n := int(read.Load()); n < len(want) {
		wrong.add(fmt.Errorf("%d of %d keys were read in the time allowed", n, len(want)))
	}
	return wrong.err()
}

// collected counts errors and keeps the first few.
type collected struct {
	mu    sync.Mutex
	count int
	first []error
}

func (c *collected) add(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	if len(c.first) < 10 {
		c.first = append(c.first, err)
	}
}

func (c *collected) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count == 0 {
		return nil
	}
	return errors.Join(append([]error{fmt.Errorf("%d errors, the first of them are", c.count)},
		c.first...)...)
}

// one returns the first error; nil if there is none.
func (c *collected) one() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.first) == 0 {
		return nil
	}
	return c.first[0]
}

const abbreviated = 60

func abbreviateText(text string) string {
	if len(text) <= abbreviated {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:abbreviated], len(text))
}

func abbreviate(s history.State) string {
	if !s.Present {
		return s.String()
	}
	return fmt.Sprintf("%q", abbreviateText(s.Value))
}
