package main

import (
	"bufio"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/records"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/target"
	"github.com/tidemarkdb/tidemark/range/keys"
)

func (a *app) backupCatCommand() *cobra.Command {
	var identity *string
	var span argument.Span
	format := string(records.TSV)
	cmd := &cobra.Command{
		Use:   "cat TARGET ID KEYSPACE",
		Short: "Print the records of a keyspace from a backup",
		Long: `Print the records of a keyspace as they were at the moment of a backup, in the formats of
"tidemark dump". No cluster is needed. Records of a range keyspace come in the order of their keys;
those of a hash keyspace in that of its hash partitions.`,
		Example: `  tidemark backup cat file:///mnt/backups 20260131T120000Z-1a2b3c4d fruit --prefix a`,
		Args:    arguments("TARGET, the ID of a backup, and a KEYSPACE", 3, 3),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			switch a.format {
			case output.JSON:
				format = string(records.JSONL)
			case output.TSV:
				format = string(records.TSV)
			case output.Raw:
				return exit.Usagef("--output raw: use tsv or json")
			}
			parsed, err := records.ParseFormat(format)
			if err != nil {
				return &exit.Error{Code: exit.Usage, Err: err}
			}
			wanted, err := span.Keys()
			if err != nil {
				return err
			}
			return a.withCatalog(ctx, args[0], *identity, func(_ target.Target,
				c *catalog.Catalog) error {
				return a.backupCat(ctx, c, args[1], args[2], wanted, parsed)
			})
		}),
	}
	identity = identityFlag(cmd)
	span.Register(cmd)
	cmd.Flags().StringVar(&format, "format", format, "tsv or jsonl")
	_ = cmd.RegisterFlagCompletionFunc("format",
		cobra.FixedCompletions([]string{"tsv", "jsonl"}, cobra.ShellCompDirectiveNoFileComp))
	a.printing(cmd)
	cmd.Flags().Lookup("output").Usage = "tsv or json, for --format tsv and jsonl"
	cmd.MarkFlagsMutuallyExclusive("output", "format")
	return cmd
}

func (a *app) backupCat(ctx context.Context, c *catalog.Catalog, id, keyspace string,
	span keys.Span, format records.Format) error {
	layers, err := c.Layers(ctx, id)
	if err != nil {
		return err
	}
	ks := layers[len(layers)-1].KeyspaceNamed(keyspace)
	if ks == nil {
		return exit.NotFoundf("the backup %s has no keyspace %q; \"tidemark backup show\" lists its "+
			"keyspaces", id, keyspace)
	}
	buffered := bufio.NewWriterSize(a.out, 256<<10)
	writer := records.NewWriter(buffered, format)
	for _, rows := range ks.RowsOf(span) {
		for r, err := range c.Records(ctx, layers, ks, rows) {
			if err != nil {
				_ = buffered.Flush()
				return err
			}
			record := records.Record{Key: ks.UserKey(r.Key), Value: r.Value}
			if r.Expiry != 0 {
				record.Expires = time.Unix(0, r.Expiry).UTC()
			}
			if err := writer.Write(record); err != nil {
				return err
			}
		}
	}
	return buffered.Flush()
}
