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

// Source is the source of users and roles; server.Client implements it.
type Source interface {
	// FollowAuthority reads one stream of users and roles from one member of the core, a different
	// one with each call, and sends the numbers from asks as questions. It returns when the stream
	// or ctx ends, or with the error of take.
	FollowAuthority(ctx context.Context, asks <-chan uint64,
		take func(*clusterpb.AuthorityUpdate) error) error
}

const (
	// DefaultGrace is how long a server uses what it has heard.
	DefaultGrace = 10 * time.Second
	// DefaultTokenTTL is how long a token is valid, as on members of the core.
	DefaultTokenTTL = 5 * time.Minute
)

// Config configures a Cache. Source and Save must be set.
type Config struct {
	Source Source
	// Mark is the mark on the server's disk. Save stores another one there, durably, before it
	// returns. One goroutine at a time calls it.
	Mark Flag
	Save func(Flag) error
	// Data is set if the server holds data, and so needs the tables before it turns its mark on. A
	// server without data needs them only to decide who may see bounds of partitions.
	Data bool
	// Changed, if not nil, is called after the mark has changed, by the goroutine of Run or Adopt.
	Changed func(Flag)

	// Grace is how long the server uses what it has heard. Default DefaultGrace.
	Grace time.Duration
	// AskEvery is the interval between questions. Default a tenth of Grace.
	AskEvery time.Duration
	// TokenTTL is how long a token is valid after it was issued. Default DefaultTokenTTL.
	TokenTTL time.Duration
	// Monotonic is the clock of Grace, Now the clock by which tokens are issued. Defaults: the
	// system's.
	Monotonic hlc.Monotonic
	Now       func() time.Time
	// Logger gets refusals, with audit=true, and reports of the core's silence.
	Logger *slog.Logger
	// Registerer gets the metrics tidemark_auth_*, until Cache.Close. nil: there are none.
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

// Flag says whether a server must follow users and roles, as stored on its disk.
type Flag struct {
	// Version counts the core's changes of the flag; 0: none is known.
	Version uint64
	// On is set if the server must follow.
	On bool
}

func flagOf(s *clusterpb.GuardState) Flag { return Flag{s.GetVersion(), s.GetOn()} }

func (m Flag) state() *clusterpb.GuardState {
	return &clusterpb.GuardState{Version: m.Version, On: m.On}
}
