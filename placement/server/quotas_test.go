package server

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/release"
)

// Quotas are refused while servers may take part that know none, and if they make no sense. They can
// be removed at any level.
func TestQuotasNeedALevel(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "z")
		defer stop()
		create(t, c, client, hash("orders", 1, 1))
		limited := hash("limited", 1, 1)
		limited.QuotaBytes, limited.QuotaRequestsPerSecond = 1<<30, 100
		refused := func(err error, code codes.Code, want string) {
			t.Helper()
			if status.Code(err) != code || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s with %q", err, code, want)
			}
		}
		alter := func(requests, bytes *uint64) (*clusterpb.Keyspace, error) {
			r, err := client.AlterKeyspace(t.Context(), &clusterpb.AlterKeyspaceRequest{Name: "orders",
				QuotaRequestsPerSecond: requests, QuotaBytesPerSecond: bytes})
			return r.GetKeyspace(), err
		}
		_, err := client.CreateKeyspace(t.Context(), limited)
		refused(err, codes.FailedPrecondition, "upgrade finalize")
		_, err = alter(proto.Uint64(5), nil)
		refused(err, codes.FailedPrecondition, "level 2 (release v0.2)")
		if _, err := alter(proto.Uint64(0), proto.Uint64(0)); err != nil {
			t.Errorf("no quotas: %v", err)
		}
		stop() // the node of this test knows no levels
		level := uint32(release.Quotas.Level)
		if _, err := c.members[0].server.meta.Commit(t.Context(), nil, store.Put([]byte(meta.LevelKey),
			meta.Encode(&serverpb.Level{Active: level, Coming: level}))); err != nil {
			t.Fatal(err)
		}
		made, err := client.CreateKeyspace(t.Context(), limited)
		if ks := made.GetKeyspace(); err != nil || ks.QuotaBytes != 1<<30 ||
			ks.QuotaRequestsPerSecond != 100 || ks.QuotaBytesPerSecond != 0 {
			t.Errorf("%v, %v", ks, err)
		}
		_, err = alter(nil, proto.Uint64(1023))
		refused(err, codes.InvalidArgument, "from 1024")
		_, err = alter(proto.Uint64(1<<40+1), nil)
		refused(err, codes.InvalidArgument, "requests a second")
		ks, err := alter(proto.Uint64(5), proto.Uint64(1<<20))
		if err != nil || ks.QuotaRequestsPerSecond != 5 || ks.QuotaBytesPerSecond != 1<<20 {
			t.Errorf("%v, %v", ks, err)
		}
		ks, err = alter(nil, proto.Uint64(0))
		if err != nil || ks.QuotaRequestsPerSecond != 5 || ks.QuotaBytesPerSecond != 0 {
			t.Errorf("%v, %v", ks, err)
		}
	})
}
