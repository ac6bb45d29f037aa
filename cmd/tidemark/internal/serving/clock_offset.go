package serving

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// clockOffsetPoll is the interval at which the file of an OffsetClock is read.
const clockOffsetPoll = 20 * time.Millisecond

// OffsetClock is the system's clock with an offset from a file. With it, fault tests give each
// server its own clock (start --clock-offset-file, which is hidden). The file has a duration such
// as -120ms. Without the file the offset is zero. A changed file takes effect within
// clockOffsetPoll, as a jump.
type OffsetClock struct {
	file   string
	offset atomic.Int64 // nanoseconds
	// refused is the last content that is not a duration, so that it is logged once. Only the
	// goroutine of Follow uses it.
	refused string
}

var _ hlc.Physical = (*OffsetClock)(nil)

// NewOffsetClock reads the file once. Follow reads it from then on.
func NewOffsetClock(file string, logger *slog.Logger) *OffsetClock {
	c := &OffsetClock{file: file}
	c.read(logger)
	return c
}

// Now implements hlc.Physical.
func (c *OffsetClock) Now() int64 { return hlc.System().Now() + c.offset.Load() }

// Follow reads the file repeatedly until ctx ends.
func (c *OffsetClock) Follow(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(clockOffsetPoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.read(logger)
		}
	}
}

// read reads the offset from the file. If the file exists and cannot be read or parsed, the offset
// does not change.
func (c *OffsetClock) read(logger *slog.Logger) {
	content, err := os.ReadFile(c.file)
	if os.IsNotExist(err) {
		c.offset.Store(0)
		return
	}
	text := strings.TrimSpace(string(content))
	var offset time.Duration
	if err == nil {
		offset, err = time.ParseDuration(text)
	}
	switch {
	case err == nil:
		c.refused = ""
		c.offset.Store(int64(offset))
	case c.refused != err.Error():
		c.refused = err.Error()
		logger.Warn("the file of the clock's offset is no use", "file", c.file, "error", err)
	}
}
