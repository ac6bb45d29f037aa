package server

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/keyspaces"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Hidden keyspaces get their names all at once or not at all, and no client can create one.
func TestPublish(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		ctx, room := t.Context(), c.members[0].server.Keyspaces()
		names := map[string]string{}
		for _, name := range []string{"a", "b"} {
			hidden := keys.HiddenName("r1", name)
			names[hidden] = name
			if _, err := client.CreateKeyspace(ctx, hash(hidden, 1, 1)); status.Code(err) !=
				codes.InvalidArgument {
				t.Errorf("a client creates %s: %v", hidden, err)
			}
			if _, err := room.Create(keyspaces.Hidden(ctx), hash(hidden, 1, 1)); err != nil {
				t.Fatal(err)
			}
		}
		for _, bad := range []string{"a", "restore/r1", "restore//a", "restore/r1/", "restore/r1/A B"} {
			if _, err := room.Create(keyspaces.Hidden(ctx), hash(bad, 1, 1)); status.Code(err) !=
				codes.InvalidArgument {
				t.Errorf("a hidden keyspace of the name %q: %v", bad, err)
			}
		}
		create(t, c, client, hash("b", 1, 1))
		record := func(state clusterpb.BackupState) {
			t.Helper()
			if _, err := c.members[0].server.meta.Commit(ctx, nil, store.Put([]byte(meta.BackupPrefix+"r1"),
				meta.Encode(&clusterpb.Backup{Id: "r1", State: state}))); err != nil {
				t.Fatal(err)
			}
		}
		record(clusterpb.BackupState_BACKUP_RUNNING)
		if err := room.Publish(ctx, "r1", names); status.Code(err) != codes.AlreadyExists {
			t.Errorf("a name that is taken: %v", err)
		}
		if keyspaceOf(t, client, "a") != nil || keyspaceOf(t, client, "restore/r1/a") == nil {
			t.Error("a part was published")
		}
		delete(names, "restore/r1/b")
		names["restore/r1/b"] = "c"
		record(clusterpb.BackupState_BACKUP_CANCELLING)
		if err := room.Publish(ctx, "r1", names); status.Code(err) != codes.FailedPrecondition ||
			keyspaceOf(t, client, "a") != nil {
			t.Errorf("a restore that was cancelled is published: %v", err)
		}
		record(clusterpb.BackupState_BACKUP_RUNNING)
		for range 2 { // the second call is that of a leader who does not know of the first one
			if err := room.Publish(ctx, "r1", names); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			if keyspaceOf(t, client, name) == nil {
				t.Errorf("there is no keyspace %q", name)
			}
		}
		if keyspaceOf(t, client, "restore/r1/a") != nil {
			t.Error("the hidden name is still there")
		}
	})
}
