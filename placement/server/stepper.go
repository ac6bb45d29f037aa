package server

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/upgrade"
)

const (

	// stepRetry is the first pause of the stepper after a step that failed. It doubles up to
	// maxStepRetry. stepAgain is the interval at which the stepper looks on its own.
	stepRetry    = 100 * time.Millisecond
	maxStepRetry = 5 * time.Second
	stepAgain    = 30 * time.Second
)

// step is the leader's background work. It takes keyspaces from CREATING to ACTIVE, and from
// DROPPING to removed. It is one goroutine, from New to Close. It reads its next step from the
// store, so it can be interrupted at any time.
func (s *Server) step() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	failures := 0
	for {
		l, changed := s.config.Store.Leadership()
		timer.Stop()
		if l.Serving {
			err := s.stepAll(s.ctx)
			wait := stepAgain
			if err != nil {
				wait = min(maxStepRetry, stepRetry<<min(failures, 10))
				failures++
				if _, refused, _ := hint.Of(err); !refused && s.ctx.Err() == nil {
					s.config.Logger.Warn("creating and dropping keyspaces is interrupted", "error", err)
				}
			} else {
				failures = 0
			}
			timer.Reset(wait)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-changed:
		case <-s.poked:
		case <-timer.C:
		}
	}
}

func (s *Server) stepAll(ctx context.Context) error {
	if err := s.meta.Claim(ctx, upgrade.Founding(s.config.Levels)...); err != nil {
		return err
	}
	v, err := s.config.Store.Read(ctx)
	if err != nil {
		return err
	}
	all, err := meta.LoadKeyspaces(v)
	if err != nil {
		return err
	}
	return errors.Join(s.keyspaces.Step(ctx, all), s.followReports(ctx), s.operators.EndDone(ctx))
}
