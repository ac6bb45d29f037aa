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

type lockFlags struct {
	holdFlags
	noWait, read, write bool
	wait                time.Duration
}

func (a *app) lockCommand() *cobra.Command {
	var f lockFlags
	cmd := &cobra.Command{
		Use:   "lock NAME -- COMMAND [ARGUMENT...]",
		Short: "Run a command while holding a lock",
		Long: `Wait for the lock NAME, run a command while holding it, and release it. The exit code
is that of the command.

The command finds a number in its environment, ` + fencingEnv + `, that is higher than
those of all earlier holders: the protected resource should refuse lower numbers than it has seen.
If this process stands still, or is cut off for longer than --ttl, the service gives the lock to
the next holder. Then the command and its child processes, in a process group of their own, get
SIGTERM, and are killed if they do not end; the exit code is 1. SIGTERM comes --kill-after before
the service gives the lock away, and SIGKILL before the lock is given away. The leader of the group,
a small process, sends these signals, also while this process stands still; if this process is
killed, it kills the group at once. But requests that the command has sent already may still arrive.
SIGHUP and SIGQUIT work like SIGTERM; Ctrl-C at a terminal is for the command.

With --read or --write the lock is the read-write lock NAME, which is separate from the lock NAME:
many holders share it for reading, or one holds it for writing.`,
		Example: `  tidemark lock nightly -- pg_dump shop
  tidemark lock nightly --no-wait -- ./report.sh
  tidemark lock nightly --wait 5m -- sh -c 'echo $` + fencingEnv + `'`,
		Args: nameAndCommand("NAME -- COMMAND", 1, false),
	}
	cmd.RunE = a.holding(func(ctx context.Context, args []string) error {
		names, command := afterDash(cmd, args)
		if err := f.check(cmd, command); err != nil {
			return err
		}
		return a.lock(ctx, &f, names[0], command)
	})
	f.register(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.noWait, "no-wait", false, "if the lock is not free, end with exit code 6")
	flags.DurationVar(&f.wait, "wait", 0,
		"wait for so long, and end with exit code 6, or 4 if the service does not say that another "+
			"client has it; 0: for ever")
	flags.BoolVar(&f.read, "read", false, "hold the read-write lock for reading")
	flags.BoolVar(&f.write, "write", false, "hold the read-write lock for writing")
	cmd.MarkFlagsMutuallyExclusive("no-wait", "wait")
	cmd.MarkFlagsMutuallyExclusive("read", "write")
	return a.recipe(cmd, &f.coordFlags)
}

func (a *app) lock(ctx context.Context, f *lockFlags, name string, command []string) error {
	return a.withSession(ctx, &f.holdFlags, func(c *coord.Client, s *coord.Session) error {
		take, try := c.Mutex(name).Lock, c.Mutex(name).TryLock
		switch {
		case f.read:
			take, try = c.RWMutex(name).RLock, c.RWMutex(name).TryRLock
		case f.write:
			take, try = c.RWMutex(name).Lock, c.RWMutex(name).TryLock
		}
		if f.noWait {
			take = try
		}
		waiting, stop := ctx, context.CancelFunc(func() {})
		switch {
		case f.noWait:
			waiting, stop = a.limited(ctx)
		case f.wait > 0:
			waiting, stop = context.WithTimeout(ctx, f.wait)
		}
		defer stop()
		if !f.noWait {
			a.say("tidemark: waiting for the lock %s", name)
		}
		lock, err := take(waiting, s)
		switch {
		case errors.Is(err, coord.ErrLocked) && ctx.Err() == nil && waiting.Err() != nil:
			return &exit.Error{Code: exit.Conflict,
				Err: fmt.Errorf("the lock %s was not free within %s", name, f.wait)}
		case err != nil:
			return err
		}
		a.say("tidemark: holding the lock %s, fencing number %d", name, lock.Token())
		err = a.runCommand(ctx, lock.Held(), s, &f.holdFlags, a.in, command, fencing(lock.Token()))
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		if failed := lock.Unlock(ending); err == nil && !errors.Is(failed, coord.ErrOutcomeUnknown) {
			return failed // the lock was lost at the very end
		}
		return err
	})
}
