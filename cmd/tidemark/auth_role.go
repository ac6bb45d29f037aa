package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) authRoleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Add and delete roles, and change what they may do",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.authRoleAddCommand(), a.authRoleDeleteCommand(), a.authRoleListCommand(),
		a.authRoleShowCommand(), a.authRoleGrantCommand(), a.authRoleRevokeCommand())
	return cmd
}

func (a *app) authRoleAddCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "add ROLE",
		Short: "Add a role",
		Long:  `Add a role, which may do nothing until it is granted something.`,
		Args:  arguments("ROLE", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.RoleAdd(ctx, args[0])
		return a.changed(err, "role", args[0])
	})
}

func (a *app) authRoleDeleteCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "delete ROLE",
		Short: "Delete a role, also from all users that have it",
		Args:  arguments("ROLE", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.RoleDelete(ctx, args[0])
		return a.changed(err, "role", args[0])
	})
}

func (a *app) authRoleListCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "list",
		Short: "List the roles",
		Args:  arguments("", 0, 0),
	}, false, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		r, err := c.RoleList(ctx)
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "role"})
		for _, name := range r.Roles {
			list.Row(name)
		}
		return list.Flush()
	})
}

func (a *app) authRoleShowCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "show ROLE",
		Short: "Show what a role may do",
		Long: `Show what a role may do: with the key alone, or with all keys from it up to the end,
which is not included; an end of one zero byte is none. A user can see the roles that it has.`,
		Args: arguments("ROLE", 1, 1),
	}, false, func(ctx context.Context, c *clientv3.Client, args []string) error {
		r, err := c.RoleGet(ctx, args[0])
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "may"}, output.Column{Name: "key"},
			output.Column{Name: "end"})
		for _, p := range r.Perm {
			var end any
			if len(p.RangeEnd) > 0 {
				end = p.RangeEnd
			}
			list.Row(strings.ToLower(p.PermType.String()), notNil(p.Key), end)
		}
		return list.Flush()
	})
}

// permitted reads KEY [END], as a permission has them.
func (r *keyRange) permitted(args []string) (key, end string, err error) {
	key, options, _, err := r.key(args)
	if err != nil {
		return "", "", err
	}
	op := clientv3.OpGet(key, options...)
	return string(op.KeyBytes()), string(op.RangeBytes()), nil
}

func (a *app) authRoleGrantCommand() *cobra.Command {
	var r keyRange
	cmd := a.authVerb(&cobra.Command{
		Use:   "grant ROLE read|write|readwrite KEY [END]",
		Short: "Let a role read or write keys",
		Long: `Let a role read or write a key, or with END the keys from KEY up to END, which is not
included, or with --prefix or --from-key others. What was granted for the same keys before is
replaced. A write that answers with what was there needs to read as well.`,
		Example: `  tidemark auth role grant app readwrite app/ --prefix
  tidemark auth role grant watcher read config/colour`,
		Args: arguments("ROLE, read, write or readwrite, and KEY [END]", 3, 4),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		may, err := clientv3.StrToPermissionType(args[1])
		if err != nil {
			return exit.Usagef("%q: a role may read, write or readwrite", args[1])
		}
		key, end, err := r.permitted(args[2:])
		if err != nil {
			return err
		}
		_, err = c.RoleGrantPermission(ctx, args[0], key, end, may)
		return a.changed(err, "role", args[0])
	})
	r.register(cmd)
	return cmd
}

func (a *app) authRoleRevokeCommand() *cobra.Command {
	var r keyRange
	cmd := a.authVerb(&cobra.Command{
		Use:   "revoke ROLE KEY [END]",
		Short: "Take back what was granted to a role",
		Long: `Take back what was granted to a role for exactly these keys, as "tidemark auth role show"
shows them.`,
		Example: `  tidemark auth role revoke app app/ --prefix`,
		Args:    arguments("ROLE KEY [END]", 2, 3),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		key, end, err := r.permitted(args[1:])
		if err != nil {
			return err
		}
		_, err = c.RoleRevokePermission(ctx, args[0], key, end)
		return a.changed(err, "role", args[0])
	})
	r.register(cmd)
	return cmd
}
