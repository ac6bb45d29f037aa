package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/kv"
)

type casFlags struct {
	argument.Encoding
	expect, expectVersion string
	expectAbsent, remove  bool
	file                  string
	ttl                   ttlFlag
}

func (a *app) casCommand() *cobra.Command {
	var f casFlags
	cmd := &cobra.Command{
		Use:   "cas NAME KEY [NEW]",
		Short: "Write a key if it is as expected (compare and swap)",
		Long: `Write the value NEW of a key in the keyspace NAME, or delete the key with --delete,
if the key is as expected at that moment: it has a value (--expect), has a version
(--expect-version), or has no value (--expect-absent).

If NEW is -, the value is standard input, as in put. The command prints the version of the new
value. If the key is not as expected, nothing is changed, the value of the key is printed on stderr,
and the exit code is 3.`,
		Example: `  tidemark cas fruit apple yellow --expect red
  tidemark cas fruit plum blue --expect-absent
  tidemark cas fruit apple --delete --expect-version 1763632000.123456789.3`,
		Args:              arguments("NAME KEY NEW, or NAME KEY and --delete", 2, 3),
		ValidArgsFunction: a.completeKeyspaces,
	}
	flags := cmd.Flags()
	f.Encoding.Register(cmd)
	flags.StringVar(&f.expect, "expect", "", "the value that the key must hold")
	flags.StringVar(&f.expectVersion, "expect-version", "",
		"the version that the key must have, as get and put print it")
	flags.BoolVar(&f.expectAbsent, "expect-absent", false, "the key must have no value")
	flags.BoolVar(&f.remove, "delete", false, "delete the key instead of writing it")
	flags.StringVar(&f.file, "value-file", "",
		"take the new value from this file, as it is; - is stdin")
	f.ttl.register(cmd)
	cmd.MarkFlagsMutuallyExclusive("delete", "ttl")
	cmd.MarkFlagsMutuallyExclusive("expect", "expect-version", "expect-absent")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error {
		expectation, err := f.expectation(flags.Changed)
		if err != nil {
			return err
		}
		key, err := f.DecodeKey(args[1])
		if err != nil {
			return err
		}
		replacement := kv.Delete()
		given := len(args) == 3 || f.file != ""
		switch {
		case f.remove && given:
			return exit.Usagef("a new value and --delete are given; use one")
		case !f.remove && !given:
			return exit.Usagef("give the new value, or --delete")
		case given:
			value, err := a.value(args[2:], f.file, f.Encoding)
			if err != nil {
				return err
			}
			options, err := f.ttl.options()
			if err != nil {
				return err
			}
			replacement = kv.Set(value, options...)
		}
		return a.cas(ctx, args[0], key, expectation, replacement)
	})
	return a.printing(a.client(cmd))
}

func (f *casFlags) expectation(changed func(string) bool) (kv.Expectation, error) {
	switch {
	case f.expectAbsent:
		return kv.ExpectAbsent(), nil
	case changed("expect"):
		value, err := f.Decode("value", f.expect)
		return kv.ExpectValue(value), err
	case changed("expect-version"):
		version, err := kv.ParseTimestamp(f.expectVersion)
		if err != nil {
			return kv.Expectation{}, exit.Usagef("--expect-version: %w", err)
		}
		return kv.ExpectVersion(version), nil
	}
	return kv.Expectation{},
		exit.Usagef("say what the key must hold: --expect, --expect-version or --expect-absent")
}

func (a *app) cas(ctx context.Context, keyspace string, key []byte, expectation kv.Expectation,
	replacement kv.Replacement) error {
	return a.withKeyspace(ctx, keyspace, func(ks *kv.Keyspace) error {
		swap, err := ks.CompareAndSwap(ctx, key, expectation, replacement)
		if err != nil {
			return err
		}
		if swap.Swapped {
			return a.printVersion(swap.Version)
		}
		if !swap.Current.Exists() {
			return exit.NotFoundf(
				"cas %q in keyspace %q: nothing was changed; the key has no value", key, keyspace)
		}
		return exit.NotFoundf("cas %q in keyspace %q: nothing was changed; the key holds "+
			"%s, version %s",
			key, keyspace, shortened(swap.Current.Value), swap.Current.Version)
	})
}

// shortened returns a value in a form that fits into a sentence.
func shortened(value []byte) string {
	const most = 100
	if len(value) <= most {
		return `"` + records.Escape(value) + `"`
	}
	return `"` + records.Escape(value[:most]) + `"...`
}
