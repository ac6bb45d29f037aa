package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// grantedKeys are the keys that a role gets rights to: keys of the coordination service, or of a
// keyspace.
type grantedKeys struct {
	keyRange
	keyspace string
	id       uint64
}

func (r *grantedKeys) register(cmd *cobra.Command, a *app) {
	r.keyRange.register(cmd)
	cmd.Flags().StringVar(&r.keyspace, "keyspace", "", "the keys are those of this keyspace")
	a.completeFlag(cmd, "keyspace", keyspacesOffered)
}

// keys parses [KEY [END]] of a keyspace. Without KEY, it returns all keys.
func (r *grantedKeys) keys(args []string) (*coordpb.KeyspaceRange, error) {
	keys := &coordpb.KeyspaceRange{Keyspace: r.keyspace, KeyspaceId: r.id}
	if len(args) == 0 {
		return keys, nil
	}
	key, end, err := r.permitted(args)
	if err != nil {
		return nil, err
	}
	keys.Start, keys.End = []byte(key), []byte(end)
	switch {
	case end == "":
		keys.End = append([]byte(key), 0)
	case end == "\x00":
		keys.End = nil
		if key == "\x00" { // all keys, in the form that etcd uses
			keys.Start = nil
		}
	}
	return keys, nil
}

// parseRights parses the rights of a role to keys of a keyspace.
func parseRights(text string) (*coordpb.Rights, error) {
	switch text {
	case "read":
		return &coordpb.Rights{Read: true}, nil
	case "write":
		return &coordpb.Rights{Write: true}, nil
	case "readwrite":
		return &coordpb.Rights{Read: true, Write: true}, nil
	case "admin":
		return &coordpb.Rights{Admin: true}, nil
	}
	return nil, exit.Usagef("%q: a role may read, write, readwrite or admin", text)
}

// rightsShown lists granted rights.
func rightsShown(r *coordpb.Rights) (all []string) {
	switch {
	case r.GetRead() && r.GetWrite():
		all = append(all, "readwrite")
	case r.GetRead():
		all = append(all, "read")
	case r.GetWrite():
		all = append(all, "write")
	}
	if r.GetAdmin() {
		all = append(all, "admin")
	}
	return all
}

// shownRange returns a range in the form in which ranges of the coordination service are shown.
func shownRange(r *coordpb.KeyspaceRange) (key []byte, end any) {
	switch {
	case len(r.End) == 0:
		return notNil(r.Start), []byte{0}
	case bytes.Equal(r.End, append(bytes.Clone(r.Start), 0)):
		return notNil(r.Start), nil
	}
	return notNil(r.Start), r.End
}

// permissionsOf returns a role's permissions for keyspaces. It returns none if the server does not
// support them, as etcd does not.
func permissionsOf(
	ctx context.Context, c *clientv3.Client, role string,
) ([]*coordpb.KeyspacePermission, error) {
	r, err := coordpb.NewPermissionsClient(c.ActiveConnection()).Get(ctx,
		&coordpb.GetPermissionsRequest{Role: role})
	if status.Code(err) == codes.Unimplemented {
		return nil, nil
	}
	return r.GetPermissions(), err
}
