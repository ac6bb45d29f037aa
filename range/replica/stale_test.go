package replica

import (
	"errors"
	"testing"

	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A replica that has failed says so to every request, also to those that any replica may answer.
func TestAFailedReplicaAnswers(t *testing.T) {
	s := &scenario{t: t, c: newTestCluster(t, 1, config.Limits{})}
	defer s.close()
	m := s.c.members[0]
	s.c.elect(m)
	m.catchUp(-1)
	m.replica.fail(errors.New("the disk is gone"))
	for _, line := range []string{"get k", "get k any-replica", "put k v"} {
		m.replica.Submit([]config.Pending{s.parseRequest(line)})
		s.c.settle()
		answers := s.answers.take()
		if len(answers) != 1 || answers[0].GetError().GetCode() != kvpb.ErrorCode_NODE_UNHEALTHY {
			t.Errorf("%s is answered with %v", line, answers)
		}
	}
}
