package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/prompt"
	"github.com/tidemarkdb/tidemark/kv"
)

// txnSession is one run of the verb txn.
type txnSession struct {
	*app
	argument.Encoding
	client *kv.Client

	// line is the number of the current line.
	line int
	// tx is the open transaction, or nil; it was begun on line begun.
	tx         *kv.Txn
	begun      int
	commitWait bool
	// loser is the last transaction if it has to run again: the next transaction gets its age.
	loser      *kv.Txn
	savepoints []namedSavepoint

	// past is the snapshot for reads outside of a transaction after the command at, or nil.
	past *kv.Snapshot
}

type namedSavepoint struct {
	name      string
	savepoint kv.Savepoint
}

// maxSavepoints is the number of savepoints that a transaction keeps.
const maxSavepoints = 1000

// errQuit leaves the session.
var errQuit = errors.New("quit")

// txnVerb is a command of a session.
type txnVerb struct {
	name, arguments, help string
	least, most           int
	// inside: the command needs a transaction. writes: it is refused while the past is read.
	inside, writes bool
	do             func(s *txnSession, ctx context.Context, args []string) error
}

// txnVerbs are all commands except help.
var txnVerbs = []txnVerb{
	{"begin", "[--commit-wait]", "begin a transaction", 0, 1, false, true, (*txnSession).begin},
	{"get", "KEYSPACE KEY", "read a key", 2, 2, false, false, (*txnSession).get},
	{"get-for-update", "KEYSPACE KEY", "read a key and lock it until the end", 2, 2, true, false,
		(*txnSession).getForUpdate},
	{"put", "KEYSPACE KEY VALUE", "write a key", 3, 3, false, true, (*txnSession).put},
	{"increment", "KEYSPACE KEY [BY]", "add to the number that a key holds", 2, 3, false, true,
		(*txnSession).increment},
	{"delete", "KEYSPACE KEY", "delete a key", 2, 2, false, true, (*txnSession).delete},
	{"scan", "KEYSPACE [PREFIX]", "show keys and values in key order", 1, 2, false, false,
		(*txnSession).scan},
	{"count", "KEYSPACE [PREFIX]", "count keys", 1, 2, false, false, (*txnSession).count},
	{"savepoint", "NAME", "name the writes so far", 1, 1, true, false,
		(*txnSession).savepoint},
	{"rollback-to", "NAME", "undo the writes since a savepoint", 1, 1, true, false,
		(*txnSession).rollbackTo},
	{"commit", "", "end the transaction: everything is written, at one version", 0, 0, true, false,
		(*txnSession).commit},
	{"rollback", "", "end the transaction: nothing is written", 0, 0, true, false,
		(*txnSession).rollback},
	{"at", "TIMESTAMP", "from here on read the past", 1, 1, false, false, (*txnSession).at},
	{"now", "", "from here on read the present again", 0, 0, false, false, (*txnSession).now},
	{"quit", "", "leave; so does exit", 0, 0, false, false,
		func(*txnSession, context.Context, []string) error {
			return errQuit
		}},
}

// otherWords maps other databases' names of commands to the names here.
var otherWords = map[string]string{"abort": "rollback", "cancel": "rollback", "set": "put",
	"incr": "increment", "del": "delete", "start": "begin"}

// txnHelp lists the commands.
func txnHelp() string {
	var b strings.Builder
	for _, v := range txnVerbs {
		fmt.Fprintf(&b, "    %-32s  %s\n", strings.TrimSpace(v.name+" "+v.arguments), v.help)
	}
	fmt.Fprintf(&b, "    %-32s  %s\n\nTIMESTAMP is %s.\n", "help", "show this list",
		strings.Replace(argument.MomentHelp, ", or", ",\nor", 1))
	return b.String()
}

// run runs one line.
func (s *txnSession) run(ctx context.Context, line string) error {
	words, err := prompt.SplitWords(line)
	if err != nil || len(words) == 0 {
		return err
	}
	name, args := words[0], words[1:]
	if name == "exit" {
		name = "quit"
	}
	if name == "help" {
		return s.app.print(txnHelp())
	}
	i := slices.IndexFunc(txnVerbs, func(v txnVerb) bool { return v.name == name })
	if i < 0 {
		names := []string{"exit", "help"}
		for _, v := range txnVerbs {
			names = append(names, v.name)
		}
		meant := didYouMean(name, names)
		if other := otherWords[name]; other != "" {
			meant = fmt.Sprintf("; did you mean %q?", other)
		}
		return exit.Usagef("there is no command %q; help lists those there are%s", name, meant)
	}
	v := txnVerbs[i]
	switch {
	case len(args) < v.least || len(args) > v.most:
		if v.most == 0 {
			return exit.Usagef("%s takes no arguments, got %d", name, len(args))
		}
		hint := ""
		if len(args) > v.most {
			hint = "; put one that holds blanks in quotes"
		}
		return exit.Usagef("%s takes %s, got %s%s", name, v.arguments,
			plural(len(args), "argument"), hint)
	case v.inside && s.tx == nil:
		return exit.Usagef("%s: there is no transaction; begin one first", name)
	case v.writes && s.past != nil:
		return exit.Usagef("%s: the past, as of %s, can only be read; give the command now first",
			name, s.past.Timestamp())
	}
	return v.do(s, ctx, args)
}

// end rolls back an open transaction.
func (s *txnSession) end() {
	if s.tx != nil {
		s.tx.Rollback()
	}
	s.tx, s.savepoints = nil, nil
}

// lost records that a transaction has failed because of another one. Older transactions win, so the
// next attempt gets the age of this one.
func (s *txnSession) lost(tx *kv.Txn, err error) {
	if errors.Is(err, kv.ErrConflict) || errors.Is(err, kv.ErrTransactionAborted) {
		s.loser = tx
	}
}

func (s *txnSession) begin(ctx context.Context, args []string) error {
	switch {
	case s.tx != nil:
		return exit.Usagef("begin: the transaction begun on line %d has not ended; commit or "+
			"rollback first", s.begun)
	case len(args) == 1 && args[0] != "--commit-wait":
		return exit.Usagef("begin %s: the only option is --commit-wait", args[0])
	}
	tx, err := s.next(ctx, len(args) == 1)
	if err != nil {
		return err
	}
	s.tx, s.begun, s.loser = tx, s.line, nil
	if s.inTerminal {
		s.say("The transaction is %s.", tx.ID()) // errors and debug txns use this id
	}
	return nil
}

// next begins a transaction. If the last transaction has to run again and was of the same kind, the
// new one is another attempt of it.
func (s *txnSession) next(ctx context.Context, commitWait bool) (*kv.Txn, error) {
	if s.loser != nil && s.commitWait == commitWait {
		return s.loser.Again(ctx)
	}
	s.commitWait = commitWait
	if commitWait {
		return s.client.Begin(ctx, kv.CommitWait())
	}
	return s.client.Begin(ctx)
}

func (s *txnSession) commit(ctx context.Context, _ []string) error {
	tx := s.tx
	s.tx, s.savepoints = nil, nil
	wrote := tx.Len() > 0
	version, err := tx.Commit(ctx)
	if err != nil {
		s.lost(tx, err)
		if isOver(err) {
			err = fmt.Errorf("%w; nothing of the transaction begun on line %d was written", err, s.begun)
		}
		return err
	}
	if wrote {
		return s.printVersion(version)
	}
	if s.inTerminal {
		s.say("There was nothing to write.")
	}
	return nil
}

func (s *txnSession) rollback(context.Context, []string) error {
	s.end()
	return nil
}

func (s *txnSession) savepoint(_ context.Context, args []string) error {
	s.savepoints = slices.DeleteFunc(s.savepoints, func(p namedSavepoint) bool {
		return p.name == args[0]
	})
	s.savepoints = append(s.savepoints, namedSavepoint{args[0], s.tx.Savepoint()})
	if len(s.savepoints) > maxSavepoints {
		s.savepoints = s.savepoints[1:]
	}
	return nil
}

func (s *txnSession) rollbackTo(_ context.Context, args []string) error {
	i := slices.IndexFunc(s.savepoints, func(p namedSavepoint) bool { return p.name == args[0] })
	if i < 0 {
		return exit.Usagef("rollback-to: the transaction has no savepoint %q; a rollback to an "+
			"earlier one forgets the later ones, and so do %d later ones",
			args[0], maxSavepoints)
	}
	if err := s.tx.RollbackTo(s.savepoints[i].savepoint); err != nil {
		return err
	}
	s.savepoints = s.savepoints[:i+1]
	return nil
}

func (s *txnSession) at(ctx context.Context, args []string) error {
	if s.tx != nil {
		return exit.Usagef("at: the transaction begun on line %d reads at one moment of its own; "+
			"commit or rollback first", s.begun)
	}
	flag := momentFlag{text: args[0]}
	if err := flag.parse(); err != nil {
		return err
	}
	moment, err := flag.at(ctx, s.client)
	if err != nil {
		return err
	}
	s.past = s.client.SnapshotAt(moment)
	return nil
}

func (s *txnSession) now(context.Context, []string) error {
	s.past = nil
	return nil
}

// txnReader is the source of a command's reads: a transaction, the past, or the present.
type txnReader interface {
	Get(ctx context.Context, ks *kv.Keyspace, key []byte) (kv.Pair, error)
	Scan(ctx context.Context, ks *kv.Keyspace, options ...kv.ScanOption) iter.Seq2[kv.Pair, error]
	Count(ctx context.Context, ks *kv.Keyspace, options ...kv.CountOption) (uint64, error)
}

// present is a txnReader that makes each read at the present.
type present struct{}

func (present) Get(ctx context.Context, ks *kv.Keyspace, key []byte) (kv.Pair, error) {
	return ks.Get(ctx, key)
}

func (present) Scan(ctx context.Context, ks *kv.Keyspace,
	options ...kv.ScanOption) iter.Seq2[kv.Pair, error] {
	return ks.Scan(ctx, options...)
}

func (present) Count(ctx context.Context, ks *kv.Keyspace,
	options ...kv.CountOption) (uint64, error) {
	return ks.Count(ctx, options...)
}

func (s *txnSession) reader() txnReader {
	switch {
	case s.tx != nil:
		return s.tx
	case s.past != nil:
		return s.past
	}
	return present{}
}

func (s *txnSession) get(ctx context.Context, args []string) error {
	return s.printKey(ctx, args, s.reader().Get)
}

func (s *txnSession) getForUpdate(ctx context.Context, args []string) error {
	err := s.printKey(ctx, args, s.tx.GetForUpdate)
	if errors.Is(err, kv.ErrNotFound) {
		s.say("tidemark: %s; it is locked", exit.Message(err)) // the caller wanted the lock
		return nil
	}
	return err
}

// printKey prints the result of get.
func (s *txnSession) printKey(ctx context.Context, args []string,
	get func(context.Context, *kv.Keyspace, []byte) (kv.Pair, error)) error {
	key, err := s.DecodeKey(args[1])
	if err != nil {
		return err
	}
	pair, err := get(ctx, s.client.Keyspace(args[0]), key)
	if err != nil {
		return err
	}
	if err := s.printPairs(args[0], []kv.Pair{pair}, nil); err != nil || s.format != output.Raw {
		return err
	}
	_, err = fmt.Fprintln(s.out) // printPairs adds no newline after a value, for files
	return err
}

func (s *txnSession) put(ctx context.Context, args []string) error {
	key, err := s.DecodeKey(args[1])
	if err != nil {
		return err
	}
	value, err := s.Decode("value", args[2])
	if err != nil {
		return err
	}
	ks := s.client.Keyspace(args[0])
	if s.tx != nil {
		return s.tx.Put(ks, key, value)
	}
	version, err := ks.Put(ctx, key, value)
	if err != nil {
		return err
	}
	return s.printVersion(version)
}

func (s *txnSession) increment(ctx context.Context, args []string) error {
	key, err := s.DecodeKey(args[1])
	if err != nil {
		return err
	}
	by := int64(1)
	if len(args) == 3 {
		if by, err = strconv.ParseInt(args[2], 10, 64); err != nil {
			return exit.Usagef("increment: %q is not a whole number of 64 bits", args[2])
		}
	}
	ks := s.client.Keyspace(args[0])
	if s.tx != nil {
		sum, err := s.tx.Increment(ctx, ks, key, by)
		if err != nil {
			return err
		}
		return s.printSum(sum, kv.Uncommitted())
	}
	sum, version, err := ks.Increment(ctx, key, by)
	if err != nil {
		return err
	}
	return s.printSum(sum, version)
}

func (s *txnSession) delete(ctx context.Context, args []string) error {
	key, err := s.DecodeKey(args[1])
	if err != nil {
		return err
	}
	ks := s.client.Keyspace(args[0])
	if s.tx != nil {
		return s.tx.Delete(ks, key)
	}
	existed, err := ks.Delete(ctx, key)
	if err != nil {
		return err
	}
	count := uint64(0)
	if existed {
		count = 1
	}
	return s.printDeleted(count)
}

// prefix returns the span of a scan or count.
func (s *txnSession) prefix(args []string) ([]kv.SpanOption, error) {
	if len(args) < 2 {
		return nil, nil
	}
	prefix, err := s.Decode("prefix", args[1])
	return []kv.SpanOption{kv.Prefix(prefix)}, err
}

func (s *txnSession) scan(ctx context.Context, args []string) error {
	spans, err := s.prefix(args)
	if err != nil {
		return err
	}
	var options []kv.ScanOption
	for _, span := range spans {
		options = append(options, span)
	}
	rows := output.NewRows(s.out, s.format, false).On(s.screen())
	pairs := s.reader().Scan(ctx, s.client.Keyspace(args[0]), options...)
	count, last, err := each(pairs, func(pair kv.Pair) error {
		return rows.Write(pair.Key, pair.Value, pair.Expires)
	})
	if flushErr := rows.Flush(); err == nil {
		err = flushErr
	}
	return howFar("scan", "rows were printed", count, last, err)
}

func (s *txnSession) count(ctx context.Context, args []string) error {
	spans, err := s.prefix(args)
	if err != nil {
		return err
	}
	var options []kv.CountOption
	for _, span := range spans {
		options = append(options, span)
	}
	count, err := s.reader().Count(ctx, s.client.Keyspace(args[0]), options...)
	if err != nil {
		return err
	}
	return s.printCount(count, nil)
}

// namingOther adds the other transaction of a conflict to an error that does not name it yet.
func namingOther(err error) error {
	var e *kv.Error
	if !errors.As(err, &e) || e.Transaction == "" || strings.Contains(err.Error(), e.Transaction) {
		return err
	}
	return fmt.Errorf("%w; the other transaction is %s", err, e.Transaction)
}
