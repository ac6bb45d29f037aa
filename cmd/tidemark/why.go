package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// numbered matches a partition or a node in the form of explanations.
var numbered = regexp.MustCompile(`^([pn]?)([0-9]+)$`)

func (a *app) whyCommand() *cobra.Command {
	var keyspace string
	cmd := &cobra.Command{
		Use:   "why PARTITION | nNODE | KEYSPACE",
		Short: "Explain where replicas and leaders are",
		Long: `Explain a partition (17 or p17), a node (n3) or a keyspace (its name).

For a partition: its problems and what is done about them; for each replica its node, the placement
rule that it satisfies, what it shares with the others, and the best other place for it, with the
reason against a move; the wanted leader; the change under way and what it waits for; and the last
changes, with what they improved. For a node: how far it is from its share of everything that is
balanced, and what prevents its drain or decommissioning. For a keyspace: how many partitions have a
problem.`,
		Example: `  tidemark why 17
  tidemark why n3
  tidemark why fruit --output json
  tidemark why --keyspace n3`,
		Args:              arguments("PARTITION, nNODE or KEYSPACE", 0, 1),
		ValidArgsFunction: a.complete(explainable),
		RunE: a.verb(func(ctx context.Context, args []string) error {
			if (len(args) == 1) == (keyspace != "") {
				return exit.Usagef("say what is to be explained: a partition (17), a node (n3) or a " +
					"keyspace (its name)")
			}
			return a.withClient(ctx, func(client *kv.Client) error {
				why, err := explain(ctx, client, strings.Join(args, ""), keyspace)
				if err != nil {
					return err
				}
				if a.format == output.JSON {
					_, err = fmt.Fprintf(a.out, "%s\n", output.PlainJSON([]byte(why.JSON)))
					return err
				}
				return a.print(output.Plain(why.Text))
			})
		}),
	}
	cmd.Flags().StringVar(&keyspace, "keyspace", "",
		"the keyspace, if its name looks like a partition or a node")
	a.completeFlag(cmd, "keyspace", keyspacesOffered)
	return a.client(a.printing(cmd))
}

// explain asks for the explanation of the object that the argument names.
func explain(ctx context.Context, client *kv.Client,
	text, keyspace string) (admin.Explanation, error) {
	found := numbered.FindStringSubmatch(text)
	switch {
	case keyspace != "":
		return admin.New(client).WhyKeyspace(ctx, keyspace)
	case found == nil:
		return admin.New(client).WhyKeyspace(ctx, text)
	case found[1] == "n":
		node, err := parseNode(text)
		if err != nil {
			return admin.Explanation{}, err
		}
		return admin.New(client).WhyNode(ctx, node)
	}
	partition, err := parsePartition(text)
	if err != nil {
		return admin.Explanation{}, err
	}
	return admin.New(client).WhyPartition(ctx, partition)
}
