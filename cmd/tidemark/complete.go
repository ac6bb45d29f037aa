package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// completeTimeout limits how long completion waits for the cluster.
const completeTimeout = 2 * time.Second

// offered returns the candidates for a word of the command line, each followed by a tab and a
// description. args are the words before it.
type offered func(ctx context.Context, client *kv.Client, args []string) []string

// completion is cobra's function type for the candidates of a word.
type completion = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective)

// complete offers candidates for each argument. Completion shows no errors: if the cluster does not
// answer in time, nothing is offered.
func (a *app) complete(arguments ...offered) completion {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(arguments) || arguments[len(args)] == nil || a.passwordFile == "-" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		a.tls.Parsed(cmd)
		var found []string
		_ = a.withClient(ctx, func(client *kv.Client) error {
			found = arguments[len(args)](ctx, client, args)
			return nil
		})
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFlag offers candidates for the value of a flag.
func (a *app) completeFlag(cmd *cobra.Command, flag string, value offered) {
	offer := a.complete(value)
	_ = cmd.RegisterFlagCompletionFunc(flag,
		func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
			return offer(cmd, nil, word)
		})
}

// completeKeyspaces offers the names of keyspaces for the first argument.
func (a *app) completeKeyspaces(cmd *cobra.Command, args []string,
	word string) ([]string, cobra.ShellCompDirective) {
	return a.complete(keyspacesOffered)(cmd, args, word)
}

func keyspacesOffered(ctx context.Context, client *kv.Client, _ []string) []string {
	return keyspaceNames(ctx, client)
}

func partitionsOffered(ctx context.Context, client *kv.Client, _ []string) (found []string) {
	all, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		return nil
	}
	for _, p := range all {
		found = append(found, strconv.FormatUint(p.ID, 10)+"\tof "+p.Keyspace)
	}
	return found
}

func nodesOffered(ctx context.Context, client *kv.Client, _ []string) (found []string) {
	all, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return nil
	}
	for _, node := range notGone(all) {
		found = append(found, fmt.Sprintf("%d\t%s", node.ID, node.Address))
	}
	return found
}

// explainable returns the candidates for arguments of "why": nodes, keyspaces and partitions.
func explainable(ctx context.Context, client *kv.Client, args []string) (found []string) {
	for _, node := range nodesOffered(ctx, client, args) {
		found = append(found, "n"+node)
	}
	found = append(found, keyspaceNames(ctx, client)...)
	return append(found, partitionsOffered(ctx, client, args)...)
}

func membersOffered(ctx context.Context, client *kv.Client, _ []string) (found []string) {
	core, err := admin.New(client).Core(ctx)
	if err != nil {
		return nil
	}
	for _, m := range core.Members {
		found = append(found, fmt.Sprintf("%s\tmember %d, %s", m.Address, m.ID, m.Role))
	}
	return found
}

// consumersOffered returns the consumers of the keyspace that the word before names.
func consumersOffered(ctx context.Context, client *kv.Client, args []string) (found []string) {
	all, err := client.Consumers(ctx, args[0])
	if err != nil {
		return nil
	}
	for _, c := range all {
		found = append(found, c.Name)
	}
	return found
}
