package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
)

func (a *app) consumersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consumers [KEYSPACE]",
		Short: "List and delete the consumers of changes",
		Long: `List the consumers of a keyspace's changes, or those of all keyspaces: the position
of each, how far it lags behind the present, for how long history is kept for it, and its range of
keys. While a consumer lags by no more than that time, garbage collection keeps the changes that it
has not taken, which takes room on disk. A consumer that lags by more is "too old": nothing is kept
for it, and its reader must read everything anew.`,
		Example: `  tidemark consumers
  tidemark consumers fruit
  tidemark consumers delete fruit search-index`,
		Args:              arguments("one KEYSPACE at most", 0, 1),
		ValidArgsFunction: a.completeKeyspaces,
		RunE: a.verb(func(ctx context.Context, args []string) error {
			keyspace := ""
			if len(args) > 0 {
				if keyspace = args[0]; keyspace == "" {
					return exit.Usagef("the keyspace has no name")
				}
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				consumers, err := client.Consumers(ctx, keyspace)
				if err != nil {
					return err
				}
				return a.printConsumers(consumers)
			})
		}),
	}
	cmd.AddCommand(a.consumersDeleteCommand())
	return a.client(a.printing(cmd))
}

func (a *app) printConsumers(consumers []kv.ConsumerInfo) error {
	list := a.list(output.Column{Name: "keyspace"}, output.Column{Name: "name"},
		output.Column{Name: "position"}, output.Column{Name: "lag"}, output.Column{Name: "keep"},
		output.Column{Name: "updated"}, output.Column{Name: "created", Programs: true},
		output.Column{Name: "state"}, output.Column{Name: "from"}, output.Column{Name: "to"})
	for _, c := range consumers {
		state := "kept"
		if c.TooOld {
			state = "too old"
		}
		list.Row(c.Keyspace, c.Name, c.Position, c.Lag.Round(time.Millisecond), c.Keep,
			moment(c.Updated), moment(c.Created), state, boundOr(c.From, c.SpanHidden),
			boundOr(c.To, c.SpanHidden))
	}
	return list.Flush()
}

// moment returns a cell with a time.
func moment(t time.Time) output.Cell {
	return output.Cell{People: t.Local().Format(time.DateTime),
		Programs: t.UTC().Format(time.RFC3339Nano)}
}

func (a *app) consumersDeleteCommand() *cobra.Command {
	return a.client(a.printing(&cobra.Command{
		Use:   "delete KEYSPACE NAME",
		Short: "Delete a consumer of changes",
		Long: `Delete a consumer of a keyspace's changes. History is not kept for it any more:
garbage collection follows the keyspace's GC window. A process that goes on to use the name makes a
new consumer.`,
		Example:           `  tidemark consumers delete fruit search-index`,
		Args:              arguments("KEYSPACE and NAME", 2, 2),
		ValidArgsFunction: a.complete(keyspacesOffered, consumersOffered),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			return a.withKeyspace(ctx, args[0], func(keyspace *kv.Keyspace) error {
				existed, err := keyspace.DeleteConsumer(ctx, args[1])
				if err != nil {
					return err
				}
				if !existed {
					return exit.NotFoundf("keyspace %q has no consumer %q; \"tidemark consumers %s\" shows "+
						"those it has", args[0], args[1], args[0])
				}
				if a.format == output.Table {
					a.say("consumer %q of keyspace %q is deleted", args[1], args[0])
					return nil
				}
				list := a.list(output.Column{Name: "keyspace"}, output.Column{Name: "name"},
					output.Column{Name: "deleted"})
				list.Row(args[0], args[1], true)
				return list.Flush()
			})
		}),
	}))
}
