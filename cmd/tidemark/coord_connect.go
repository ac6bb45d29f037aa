package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// coordFlags are the flags that all commands of the coordination service share.
type coordFlags struct{ namespace string }

// coordClient adds the flags of commands that use the coordination service.
func (a *app) coordClient(cmd *cobra.Command, f *coordFlags) *cobra.Command {
	return a.client(cmd)
}

// recipe adds the flags of commands that are recipes.
func (a *app) recipe(cmd *cobra.Command, f *coordFlags) *cobra.Command {
	cmd.Flags().StringVar(&f.namespace, "namespace", coord.DefaultPrefix,
		"what the keys of locks, elections and timers begin with; programs have to use the same")
	return a.coordClient(cmd, f)
}

// withCoord runs do with a client of the coordination service, and closes it.
func (a *app) withCoord(ctx context.Context, f *coordFlags, do func(*coord.Client) error) error {
	endpoints, err := a.addresses()
	if err != nil {
		return err
	}
	options := []coord.Option{coord.Prefix(f.namespace), coord.DialTimeout(a.timeout)}
	config, err := a.tls.Config(a.getenv)
	if err != nil {
		return err
	}
	if config != nil {
		options = append(options, coord.TLS(config))
	}
	name, password, err := a.credentials()
	if err != nil {
		return err
	}
	if name != "" {
		options = append(options, coord.User(name, password))
	}
	client, err := coord.Connect(ctx, endpoints, options...)
	if err != nil {
		return coordFailed(fmt.Errorf("the coordination service at %s does not answer: %w",
			strings.Join(endpoints, ", "), err))
	}
	defer client.Close()
	return coordFailed(do(client))
}

// withEtcd runs do with the etcd client, for commands that are not recipes, within --timeout.
// write: the command changes data.
func (a *app) withEtcd(ctx context.Context, f *coordFlags, write bool,
	do func(context.Context, *clientv3.Client) error) error {
	return a.withCoord(ctx, f, func(client *coord.Client) error {
		ctx := ctx
		if a.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.timeout)
			defer cancel()
		}
		err := do(ctx, client.Etcd())
		if write && isLost(err) {
			return lost(err)
		}
		return err
	})
}

// lost returns the error of a write that may have been executed.
func lost(err error) error {
	return &exit.Error{Code: exit.Unknown, Err: fmt.Errorf(
		"there was no answer; it may or may not have taken effect: %w", err)}
}

// madeAgain handles the error of a write that the etcd client repeats automatically: even if the
// last attempt was not executed, an earlier one may have been.
func madeAgain(err error) error {
	if coordpb.IsNotSent(err) || coordpb.IsLeaderless(err) {
		return lost(err)
	}
	return err
}

// isLost reports whether a failed write may have been executed.
func isLost(err error) bool {
	if err == nil {
		return false
	}
	var coded *exit.Error
	if errors.As(err, &coded) || coordpb.IsNotSent(err) || coordpb.IsLeaderless(err) {
		return false
	}
	switch codeOf(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
		return true
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// codeOf returns the gRPC code of an error of the service.
func codeOf(err error) codes.Code {
	var of rpctypes.EtcdError
	if errors.As(err, &of) {
		return of.Code()
	}
	return status.Code(err)
}

// coordFailed gives an error of the coordination service its exit code.
func coordFailed(err error) error {
	var coded *exit.Error
	if err == nil || errors.As(err, &coded) {
		return err
	}
	is := func(kinds ...error) bool {
		for _, kind := range kinds {
			if errors.Is(err, kind) {
				return true
			}
		}
		return false
	}
	code := exit.Failed
	switch {
	case is(coord.ErrOutcomeUnknown):
		code = exit.Unknown
	case is(coord.ErrInvalidArgument):
		code = exit.Usage
	case is(coord.ErrLocked, coord.ErrExists):
		code = exit.Conflict
	case is(coord.ErrSessionEnded, coord.ErrLost):
	case is(rpctypes.ErrLeaseNotFound, rpctypes.ErrKeyNotFound, rpctypes.ErrUserNotFound,
		rpctypes.ErrRoleNotFound):
		code = exit.NotFound
	case is(rpctypes.ErrUserEmpty):
		return &exit.Error{Code: exit.Failed, Err: said{
			"authentication is enabled: give --user, and its password in a file (--password-file)", err}}
	case coordpb.IsNotSent(err):
		return &exit.Error{Code: exit.Unavailable, Err: said{"the server that was asked reaches no " +
			"member of the consistent core; nothing was done: look at \"tidemark status\"", err}}
	case strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner)):
		return &exit.Error{Code: exit.Unavailable, Err: said{"the server that was asked is a member of " +
			"the core without a vote, which does not answer this; nothing was done: give the other " +
			"members as --endpoints, too", err}}
	case is(rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrInvalidAuthToken):
		code = exit.Failed
	case is(context.DeadlineExceeded):
		code = exit.Unavailable
	default:
		switch codeOf(err) {
		case codes.Unavailable, codes.DeadlineExceeded:
			code = exit.Unavailable
		case codes.ResourceExhausted:
			code = exit.Usage // the message is too large
			if coordpb.IsTooMany(err) || is(rpctypes.ErrNoSpace) {
				code = exit.Unavailable
			}
		case codes.InvalidArgument, codes.OutOfRange, codes.FailedPrecondition:
			code = exit.Usage
		}
	}
	text := strings.ReplaceAll(err.Error(), "coord: ", "")
	return &exit.Error{Code: code, Err: said{text, err}}
}

// said is an error with another text.
type said struct {
	text string
	err  error
}

func (s said) Error() string { return s.text }
func (s said) Unwrap() error { return s.err }
