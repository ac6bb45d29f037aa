package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/prompt"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) txnCommand() *cobra.Command {
	var e argument.Encoding
	var historyFlag string
	cmd := &cobra.Command{
		Use:   "txn",
		Short: "Run transactions from a script or a prompt; list and abort open ones",
		Long: `Run transactions over any keys of any keyspaces. The commands come from standard input,
one a line; at a terminal there is a prompt.

` + txnHelp() + `
Words are separated by blanks; a word in 'single' or "double" quotes may contain blanks. Lines that
begin with # are comments. Outside of begin and commit each command runs by itself, as the verb of
the same name does. Inside, the transaction's own reads see its writes, without a version; no other
reader sees them before the commit. commit prints the version. With --output raw get prints the
value and a newline.

In a script an error ends everything: the transaction is rolled back, and the exit code says why, as
for the other verbs. Earlier committed transactions stay. The end of the script inside a transaction
rolls the transaction back too. A key without a value is an error for get; get-for-update locks the
key, says so and goes on. At the prompt an error is printed, and the transaction is rolled back only
if it cannot be committed any more. If another transaction was in the way, the next transaction has
the same age, and the older transaction wins; its get locks, as get-for-update does, the keys that
the earlier attempts had both read and written. The id that begin prints at the prompt is the id in
errors, in tidemark txn list and tidemark debug txns, and for tidemark txn abort.

At the prompt the arrow keys move in the line and through earlier lines, and Tab completes commands
and keyspaces. Earlier lines are kept in a file, those of put without the value; a line that begins
with a blank is not kept.`,
		Example: `  printf '%s\n' begin 'put fruit apple red' 'put fruit pear ripe' commit |
    tidemark txn
  tidemark txn < transfer.txt
  tidemark txn
  tidemark txn list`,
		Args: onlyScripts,
		RunE: a.verb(func(ctx context.Context, _ []string) error {
			return a.withClient(ctx, func(client *kv.Client) error {
				s := &txnSession{app: a, client: client, Encoding: e}
				defer s.end()
				if a.inTerminal {
					return s.prompt(ctx, historyFlag)
				}
				return s.script(ctx)
			})
		}),
	}
	e.Register(cmd)
	cmd.Flags().StringVar(&historyFlag, "history", "",
		"file for the prompt's earlier lines, or off (default "+prompt.HistoryEnv+
			", or tidemark/history in XDG_STATE_HOME or ~/.local/state)")
	_ = cmd.MarkFlagFilename("history")
	cmd.AddCommand(a.txnListCommand(), a.txnAbortCommand())
	return a.printing(a.client(cmd))
}

// onlyScripts is for a command that reads a script and has subcommands.
func onlyScripts(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if strings.ContainsAny(args[0], "./") {
		return exit.Usagef("txn takes no arguments; a script is read from standard input: "+
			"tidemark txn < %s", args[0])
	}
	return onlyCommands(cmd, args)
}

// script runs the commands of standard input up to the first error.
func (s *txnSession) script(ctx context.Context) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	for line := range prompt.ReadLines(inner, s.in) {
		s.line = line.Number
		err := line.Err
		if err == nil {
			err = s.run(ctx, line.Text)
		}
		switch {
		case errors.Is(err, errQuit):
			return s.unfinished()
		case err != nil:
			return s.failed(ctx, err)
		}
	}
	if ctx.Err() != nil {
		return s.failed(ctx, ctx.Err())
	}
	return s.unfinished()
}

// unfinished returns the error of a script that ends inside a transaction.
func (s *txnSession) unfinished() error {
	if s.tx == nil {
		return nil
	}
	return exit.Usagef("the script ends inside the transaction begun on line %d, which was "+
		"rolled back; end it with commit or rollback", s.begun)
}

// failed adds the line to an error, and rolls back.
func (s *txnSession) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) && !errors.Is(err, kv.ErrOutcomeUnknown) {
		err = fmt.Errorf("interrupted: %w", ctx.Err())
	}
	err = fmt.Errorf("line %d: %w", s.line, keyspaceMeant(ctx, s.client, namingOther(err)))
	if s.tx != nil {
		next := "; the"
		if strings.HasSuffix(err.Error(), "?") {
			next = " The"
		}
		err = fmt.Errorf("%w%s transaction begun on line %d was rolled back", err, next, s.begun)
	}
	s.end()
	return unknownOr(err)
}

// unknownOr gives an error of unknown outcome the exit code for that, which an interruption does not
// replace.
func unknownOr(err error) error {
	if errors.Is(err, kv.ErrOutcomeUnknown) {
		return &exit.Error{Code: exit.Unknown, Err: err}
	}
	return err
}

// prompt executes typed lines until the session ends.
func (s *txnSession) prompt(ctx context.Context, historyFlag string) error {
	inner, stop := context.WithCancel(ctx)
	defer stop()
	s.say("Type help for the commands, and quit to leave.")
	var lines iter.Seq[prompt.Line]
	ask := func() {} // the line editor shows the prompt
	if s.keys != nil {
		lines = s.editedLines(inner, s.keys,
			prompt.OpenHistory(prompt.HistoryFile(historyFlag, s.getenv)))
	} else {
		lines, ask = prompt.ReadLines(inner, s.in), s.ask
	}
	ask()
	for line := range lines {
		s.line = line.Number
		err := line.Err
		if err == nil {
			err = s.run(ctx, line.Text)
		}
		switch {
		case errors.Is(err, errInterrupted):
			s.say("")
			_ = s.leave(ctx)
			return exit.Silent(exit.Interrupted)
		case errors.Is(err, kv.ErrOutcomeUnknown) && ctx.Err() != nil:
			return unknownOr(err) // a commit was interrupted
		case errors.Is(err, errQuit) || ctx.Err() != nil:
			return s.leave(ctx)
		case err != nil:
			s.complain(keyspaceMeant(ctx, s.client, err))
		}
		ask()
	}
	s.say("")
	return s.leave(ctx)
}

func (s *txnSession) ask() { fmt.Fprint(s.err, s.promptText()) }

// promptText returns the prompt, which shows the state of the session.
func (s *txnSession) promptText() string {
	where := ""
	switch {
	case s.tx != nil:
		where = " (transaction)"
	case s.past != nil:
		where = " (past)"
	}
	return "tidemark" + where + "> "
}

// complain prints an error, and rolls back a transaction that can no longer commit.
func (s *txnSession) complain(err error) {
	if !errors.Is(err, exit.ErrSaid) {
		s.say("tidemark: %s", exit.Message(namingOther(err)))
	}
	if s.tx != nil && isOver(err) {
		s.lost(s.tx, err)
		s.end()
		s.say("The transaction was rolled back; begin it again.")
	}
}

// leave ends the session.
func (s *txnSession) leave(ctx context.Context) error {
	if s.tx != nil {
		s.end()
		s.say("The transaction was rolled back.")
	}
	if ctx.Err() != nil {
		return exit.Silent(exit.Interrupted)
	}
	return nil
}

// isOver reports whether the transaction of an error can no longer commit.
func isOver(err error) bool {
	for _, kind := range []error{kv.ErrConflict, kv.ErrTransactionAborted, kv.ErrTransactionTooOld,
		kv.ErrTransactionEnded} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
