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

// clockOffsetPoll is how often the file of an offset clock is read.
const clockOffsetPoll = 20 * time.Millisecond

// OffsetClock is the system's clock set off by what a file says, so that fault tests can give each
// server a clock of its own (start --clock-offset-file, which is hidden). The file holds a duration
// like -120ms; without the file the clock is right. A changed file takes effect within
// clockOffsetPoll, as a jump.
type OffsetClock struct {
	file   string
	offset atomic.Int64 // nanoseconds
	// refused is the last content that is no duration, so that it is logged once. Only the
	// goroutine of follow uses it.
	refused string
}

var _ hlc.Physical = (*OffsetClock)(nil)

// NewOffsetClock reads the file once; follow reads it from then on.
func NewOffsetClock(file string, logger *slog.Logger) *OffsetClock {
	c := &OffsetClock{file: file}
	c.read(logger)
	return c
}

// Now implements hlc.Physical.
func (c *OffsetClock) Now() int64 { return hlc.System().Now() + c.offset.Load() }

// Follow reads the file again and again until ctx ends.
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

// read takes the offset from the file. If the file exists and cannot be read or parsed, the offset
// stays as it is.
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
