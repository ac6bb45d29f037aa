package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func (a *app) putCommand() *cobra.Command {
	var e argument.Encoding
	var file string
	var ttl ttlFlag
	cmd := &cobra.Command{
		Use:   "put NAME KEY VALUE",
		Short: "Write the value of a key, over any existing value",
		Long: `Write the value of a key into the keyspace NAME, over any existing value. The command
prints the version, which is the timestamp of the write; with --output raw only that.

With --ttl the value expires that long after its version; get shows the expiry. A later write
replaces the value together with its expiry.

Key and value are taken literally, unless --hex, --base64 or --escaped is given. The value - stands
for standard input, up to its end; --escaped '\x2d' writes one hyphen.`,
		Example: `  tidemark put fruit apple green
  tidemark put pictures cat.png --value-file cat.png
  tidemark put binary 00ff cafe --hex
  date | tidemark put fruit picked -
  tidemark put sessions 7f3a alice --ttl 30m
  before=$(tidemark put fruit apple green --output raw)`,
		Args:              arguments("NAME KEY VALUE, or NAME KEY and --value-file", 2, 3),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			key, err := e.DecodeKey(args[1])
			if err != nil {
				return err
			}
			value, err := a.value(args[2:], file, e)
			if err != nil {
				return err
			}
			options, err := ttl.options()
			if err != nil {
				return err
			}
			return a.put(ctx, args[0], key, value, options)
		}),
	}
	e.Register(cmd)
	cmd.Flags().StringVar(&file, "value-file", "",
		"take the value from this file, as it is; - is stdin")
	ttl.register(cmd)
	return a.printing(a.client(cmd))
}

func (a *app) put(ctx context.Context, keyspace string, key, value []byte,
	options []kv.WriteOption) error {
	return a.withKeyspace(ctx, keyspace, func(ks *kv.Keyspace) error {
		version, err := ks.Put(ctx, key, value, options...)
		if err != nil {
			return err
		}
		return a.printVersion(version)
	})
}

// printVersion prints the version of a write.
func (a *app) printVersion(version kv.Timestamp) error {
	list := a.list(output.Column{Name: "version"})
	list.Row(version)
	return list.Flush()
}

// value returns the value of a write, from an argument or a file.
func (a *app) value(arguments []string, file string, e argument.Encoding) ([]byte, error) {
	switch {
	case len(arguments) == 1 && file != "":
		return nil, exit.Usagef("a value and --value-file are given; use one")
	case len(arguments) == 1 && arguments[0] == stdin:
		return a.valueOf(a.in, "the value on standard input")
	case len(arguments) == 1:
		return e.Decode("value", arguments[0])
	case file == "":
		return nil, exit.Usagef(
			"there is no value; put takes NAME KEY VALUE, or NAME KEY and --value-file")
	}
	if file == stdin {
		return a.valueOf(a.in, "--value-file -")
	}
	opened, err := os.Open(file)
	if err != nil {
		return nil, exit.Usagef("--value-file: %w", err)
	}
	defer opened.Close()
	return a.valueOf(opened, "--value-file "+file)
}

// stdin is the argument that stands for standard input.
const stdin = "-"

// valueOf reads a value from in, to the end. name describes in for errors.
func (a *app) valueOf(in io.Reader, name string) ([]byte, error) {
	if in == a.in && a.inTerminal {
		a.say("tidemark: the value is what is typed now; Ctrl-D at the beginning of a line ends it")
	}
	value, err := io.ReadAll(io.LimitReader(in, keys.MaxValueSize+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(value) > keys.MaxValueSize {
		return nil, exit.Usagef("%s: it is longer than the limit of a value, %d bytes", name,
			keys.MaxValueSize)
	}
	return value, nil
}
