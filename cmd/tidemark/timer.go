package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv/coord"
)

var missedPolicies = map[string]coord.Missed{"skip": coord.SkipMissed, "once": coord.FireOnce,
	"each": coord.FireEach}

type timerFlags struct {
	holdFlags
	missed         string
	count, catchUp int
}

func (a *app) timerCommand() *cobra.Command {
	var f timerFlags
	cmd := &cobra.Command{
		Use:   "timer NAME PERIOD -- COMMAND [ARGUMENT...]",
		Short: "Run a command once in every period, on one of many machines",
		Long: `Run a command once in every period, such as 10m. Start this process with the same NAME
and PERIOD on any number of machines: in each period one of them runs the command. Periods are
counted from 1970-01-01 00:00 UTC, by the clocks of the coordination service: 1h is on the hour,
whatever the clock of this machine shows. The process goes on until it is interrupted.

A period belongs to the machine that was first to claim it. If that machine dies, or the command
fails, the command is not run again in that period. If this process cannot find out who has claimed
a period, it does not run the command, and says so. --missed decides about periods in which no
process ran the command: they are left out (skip), or the command is run once for all of them
(once), or once for each of the last --catch-up periods (each).

The environment of the command has TIDEMARK_TIMER_DUE, the time at which its period was due,
TIDEMARK_TIMER_MISSED, the number of periods left out before it, and ` + fencingEnv + `,
which is higher in each period. If this process is interrupted or killed, so are the command and its
child processes. SIGHUP and SIGQUIT work like SIGTERM.`,
		Example: `  tidemark timer cleanup 10m -- ./cleanup.sh
  tidemark timer invoices 24h --missed each -- sh -c './invoices --day "$TIDEMARK_TIMER_DUE"'`,
		Args: nameAndCommand("NAME PERIOD -- COMMAND", 2, false),
	}
	cmd.RunE = a.holding(func(ctx context.Context, args []string) error {
		names, command := afterDash(cmd, args)
		period, err := time.ParseDuration(names[1])
		if err != nil {
			return exit.Usagef("%q is no period: give a duration, such as 10m", names[1])
		}
		if period < coord.MinPeriod {
			return exit.Usagef("a period of %s: give %s or more", period, coord.MinPeriod)
		}
		missed, ok := missedPolicies[f.missed]
		if !ok {
			return exit.Usagef("--missed %s: use skip, once or each", f.missed)
		}
		if err := f.check(cmd, command); err != nil {
			return err
		}
		if f.catchUp < 1 {
			return exit.Usagef("--catch-up %d: give 1 or more", f.catchUp)
		}
		return a.timer(ctx, &f, names[0], period, missed, command)
	})
	f.registerPatience(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.missed, "missed", "skip", "periods that were missed: skip, once or each")
	flags.IntVar(&f.catchUp, "catch-up", coord.DefaultCatchUp,
		"with --missed each: the greatest number of missed periods for which COMMAND is run")
	flags.IntVar(&f.count, "count", 0, "end after so many runs on this machine; 0: go on")
	return a.recipe(cmd, &f.coordFlags)
}

func (a *app) timer(ctx context.Context, f *timerFlags, name string, period time.Duration,
	missed coord.Missed, command []string) error {
	return a.withCoord(ctx, &f.coordFlags, func(c *coord.Client) error {
		a.say("tidemark: waiting for the periods of %s, every %s", name, period)
		runs := 0
		timer := c.Timer(name, period, missed, coord.CatchUp(f.catchUp))
		for tick, err := range timer.Ticks(ctx) {
			switch {
			case err != nil && ctx.Err() != nil:
				return nil // this is the normal end
			case errors.Is(err, coord.ErrOutcomeUnknown), errors.Is(err, coord.ErrClockAhead):
				a.say("tidemark: %s", exit.Message(coordFailed(err)))
				continue
			case err != nil:
				return err
			}
			due := tick.Due.Format(time.RFC3339Nano)
			a.say("tidemark: running the command for %s", due)
			err := a.runCommand(ctx, ctx, nil, &f.holdFlags, nil, command, fencing(tick.Token),
				"TIDEMARK_TIMER_DUE="+due, fmt.Sprintf("TIDEMARK_TIMER_MISSED=%d", tick.Missed))
			var coded *exit.Error
			switch {
			case ctx.Err() != nil:
				return nil
			case errors.As(err, &coded) && errors.Is(err, exit.ErrSaid):
				a.say("tidemark: the command for %s ended with exit code %d", due, coded.Code)
			case err != nil:
				return err
			}
			if runs++; runs == f.count {
				return nil
			}
		}
		return nil
	})
}
