package main

import (
	"context"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
)

func (a *app) authUserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Add, change and delete users",
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.authUserAddCommand(), a.authUserPasswordCommand(), a.authUserDeleteCommand(),
		a.authUserListCommand(), a.authUserShowCommand(), a.authUserGrantCommand(),
		a.authUserRevokeCommand())
	return cmd
}

const newPasswordFlag = "new-password-file"

func newPassword(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, newPasswordFlag, "",
		"take the user's password from this file; - is stdin")
}

func (a *app) authUserAddCommand() *cobra.Command {
	var file string
	var none bool
	cmd := a.authVerb(&cobra.Command{
		Use:   "add USER",
		Short: "Add a user",
		Long: `Add a user. A user has no rights until a role is granted. A user with --no-password
can only be identified by a certificate with the user's name.`,
		Example: `  tidemark auth user add app --new-password-file app.password
  tidemark auth user add app --no-password`,
		Args: arguments("USER", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		if none {
			_, err := c.UserAddWithOptions(ctx, args[0], "", &clientv3.UserAddOptions{NoPassword: true})
			return a.changed(err, "user", args[0])
		}
		password, err := a.newPassword(file)
		if err != nil {
			return err
		}
		_, err = c.UserAdd(ctx, args[0], password)
		return a.changed(err, "user", args[0])
	})
	newPassword(cmd, &file)
	cmd.Flags().BoolVar(&none, "no-password", false, "the user has no password")
	cmd.MarkFlagsMutuallyExclusive(newPasswordFlag, "no-password")
	return cmd
}

func (a *app) newPassword(file string) (string, error) {
	if file == "" {
		return "", exit.Usagef("give the user's password in a file: --%s", newPasswordFlag)
	}
	return a.passwordIn("--"+newPasswordFlag, file)
}

func (a *app) authUserPasswordCommand() *cobra.Command {
	var file string
	cmd := a.authVerb(&cobra.Command{
		Use:   "password USER",
		Short: "Change the password of a user",
		Long: `Change the password of a user. The user's tokens end, and its programs need the new
password.`,
		Example: `  tidemark auth user password app --new-password-file new.password \
    --user root --password-file root.password`,
		Args: arguments("USER", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		password, err := a.newPassword(file)
		if err != nil {
			return err
		}
		_, err = c.UserChangePassword(ctx, args[0], password)
		return a.changed(err, "user", args[0])
	})
	newPassword(cmd, &file)
	return cmd
}

func (a *app) authUserDeleteCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "delete USER",
		Short: "Delete a user",
		Long:  `Delete a user. The user's tokens end.`,
		Args:  arguments("USER", 1, 1),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.UserDelete(ctx, args[0])
		return a.changed(err, "user", args[0])
	})
}

func (a *app) authUserListCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "list",
		Short: "List the users",
		Args:  arguments("", 0, 0),
	}, false, func(ctx context.Context, c *clientv3.Client, _ []string) error {
		r, err := c.UserList(ctx)
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "user"})
		for _, name := range r.Users {
			list.Row(name)
		}
		return list.Flush()
	})
}

func (a *app) authUserShowCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "show USER",
		Short: "Show the roles of a user",
		Long:  `Show the roles of a user. A user without the role root can see only its own roles.`,
		Args:  arguments("USER", 1, 1),
	}, false, func(ctx context.Context, c *clientv3.Client, args []string) error {
		r, err := c.UserGet(ctx, args[0])
		if err != nil {
			return err
		}
		list := a.list(output.Column{Name: "role"})
		for _, role := range r.Roles {
			list.Row(role)
		}
		return list.Flush()
	})
}

func (a *app) authUserGrantCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "grant USER ROLE",
		Short: "Give a user a role",
		Long:  `Give a user a role. The role root may do everything.`,
		Args:  arguments("USER ROLE", 2, 2),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.UserGrantRole(ctx, args[0], args[1])
		return a.changed(err, "user", args[0])
	})
}

func (a *app) authUserRevokeCommand() *cobra.Command {
	return a.authVerb(&cobra.Command{
		Use:   "revoke USER ROLE",
		Short: "Take a role from a user",
		Args:  arguments("USER ROLE", 2, 2),
	}, true, func(ctx context.Context, c *clientv3.Client, args []string) error {
		_, err := c.UserRevokeRole(ctx, args[0], args[1])
		return a.changed(err, "user", args[0])
	})
}
