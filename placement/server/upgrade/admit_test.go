package upgrade

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A server whose program does not support level 0 is refused by a core at that level, for good. A
// new core that has no level yet has the server ask again: it will have the level of its first
// leader.
func TestNewCoreRefusesNobody(t *testing.T) {
	said := &clusterpb.Levels{Min: 1, Max: 2}
	for _, c := range []struct {
		record  Record
		said    *clusterpb.Levels
		code    codes.Code
		refused bool
	}{
		{Record{Level: &serverpb.Level{}}, said, codes.FailedPrecondition, true},
		{Record{Level: &serverpb.Level{}, founding: true}, said, codes.Unavailable, false},
		{Record{Level: &serverpb.Level{}, founding: true}, nil, codes.OK, false},
		{Record{Level: &serverpb.Level{Active: 2, Coming: 2}, Revision: 1}, said, codes.OK, false},
	} {
		err := c.record.Admit("server:1", "v0.2", c.said)
		if status.Code(err) != c.code || Refused(err) != c.refused {
			t.Errorf("%+v, %v: %v", c.record, c.said, err)
		}
	}
}
