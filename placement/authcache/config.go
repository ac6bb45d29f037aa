package authcache

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Source is where users and roles come from; server.Client has it.
type Source interface {
	// FollowAuthority reads one stream of them from one member of the core, another one with each
	// call, and asks by the numbers that come from asks. It returns when the stream or ctx ends, or
	// with the error of take.
	FollowAuthority(ctx context.Context, asks <-chan uint64,
		take func(*clusterpb.AuthorityUpdate) error) error
}

const (
	// DefaultGrace is for how long a server goes by what it has heard.
	DefaultGrace = 10 * time.Second
	// DefaultTokenTTL is for how long a token counts, as with members of the core.
	DefaultTokenTTL = 5 * time.Minute
)

// Config is what a Cache is made of. Source and Save must be set.
type Config struct {
	Source Source
	// Mark is what the server has on disk, and Save writes another one there, durably, before it
	// returns. It is called by one goroutine at a time.
	Mark Flag
	Save func(Flag) error
	// Data says that the server holds data, and so needs the tables before it goes by a mark that is
	// on. One that does not needs them only to say whom it shows bounds of partitions.
	Data bool
	// Changed, if not nil, is called after the mark has changed, by the goroutine of Run or Adopt.
	Changed func(Flag)

	// Grace is for how long the server goes by what it has heard. Default DefaultGrace.
	Grace time.Duration
	// AskEvery is how often it asks. Default a tenth of Grace.
	AskEvery time.Duration
	// TokenTTL is for how long a token counts after it was issued. Default DefaultTokenTTL.
	TokenTTL time.Duration
	// Monotonic is the clock of Grace, Now the one by which tokens were issued. Defaults: the
	// system's.
	Monotonic hlc.Monotonic
	Now       func() time.Time
	// Logger is told what is refused, with audit=true, and of the core's silence.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Cache.Close. nil: none does.
	Registerer prometheus.Registerer
}

func (c *Config) ensureDefaults() error {
	if c.Source == nil || c.Save == nil {
		return errors.New("authcache: Source and Save must be set")
	}
	if c.Grace <= 0 {
		c.Grace = DefaultGrace
	}
	if c.AskEvery <= 0 {
		c.AskEvery = c.Grace / 10
	}
	if c.TokenTTL <= 0 {
		c.TokenTTL = DefaultTokenTTL
	}
	if c.Monotonic == nil {
		c.Monotonic = hlc.SystemMonotonic()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
